"""What the code of a page registers does not outlive its test."""

import pytest

from cost_models import registry


@pytest.fixture(autouse=True)
def _the_rules_there_were(monkeypatch):
    registry._load_rules()
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
