"""Writes docs/demo.svg: a real run of the demo playbook with the embedded model, as a terminal shows it.

python scripts/make_demo_picture.py
"""

from __future__ import annotations

import asyncio
import io
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from rich._export_format import CONSOLE_SVG_FORMAT  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.text import Text  # noqa: E402

from cuebook.config import load  # noqa: E402
from cuebook.dialects.playbook import Playbook  # noqa: E402
from cuebook.surfaces.cli.session import opened, shown  # noqa: E402
from cuebook.surfaces.cli.terminal.rich_view import Terminal  # noqa: E402
from cuebook.wiring.wiring import Wiring  # noqa: E402

PLAYBOOK = ROOT / "examples" / "launch-note.playbook.md"
TARGET = ROOT / "docs" / "demo.svg"

# Use the reader's own fonts: a picture in a repository must not fetch anything.
FORMAT = re.sub(r"<!--.*?-->\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
FORMAT = re.sub(r"@font-face\s*\{\{.*?\}\}", "", FORMAT, flags=re.DOTALL).replace(
    "font-family: Fira Code, monospace", "font-family: ui-monospace, Menlo, Consolas, monospace"
)


async def main() -> int:
    console = Console(record=True, width=92, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ cuebook run {PLAYBOOK.relative_to(ROOT)}", "bold"))
    console.print()
    with tempfile.TemporaryDirectory() as folder:
        wiring = Wiring(load({"store": str(Path(folder) / "demo.db")}))
        async with opened(wiring, create=True) as service:
            row = await service.start(
                Playbook.from_text(PLAYBOOK.read_text(encoding="utf-8"), PLAYBOOK.name), {}, wiring.settings()
            )
            code = await shown(service, row, Terminal(console=console))
    picture = console.export_svg(title="cuebook", code_format=FORMAT, unique_id="demo")
    TARGET.write_text("\n".join(line.rstrip() for line in picture.splitlines()) + "\n", encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
