"""A run's settings: the caller's choices and later changes."""

from __future__ import annotations

from cuebook.kernel.run import Budget, Settings


def test_settings_are_edited_field_by_field() -> None:
    settings = Settings(model="test/one", budget=Budget(money=1.0))
    assert settings.edited({"model": "test/two"}) == Settings(
        model="test/two", budget=Budget(money=1.0), model_wins=True
    )
    assert settings.edited({"budget": {"tokens": 5}}).budget == Budget(tokens=5)
    assert settings.edited({}) is settings
