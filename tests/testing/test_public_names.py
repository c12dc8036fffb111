"""Names that users import from `cuebook.testing`."""

from __future__ import annotations

import cuebook.testing
from cuebook.testing import runner


def test_the_former_name_of_the_runner_still_works() -> None:
    from cuebook.testing import playbooks

    assert playbooks is runner


def test_every_public_name_is_there() -> None:
    assert all(hasattr(cuebook.testing, name) for name in cuebook.testing.__all__)
