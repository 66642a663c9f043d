"""Grappler's memory optimiser stays out of everything that is set up here."""

import re
from pathlib import Path

import placer

_CONFIGURATION = re.compile(r"\bConfigProto\(")
_SWITCHED = re.compile(r"\bswitch_(memory_|functions_memory_)?optimisers?_off\(")


def test_every_configuration_that_is_written_has_it_off():
    """Where a module makes a ConfigProto to run something, it switches the optimiser off."""
    package = Path(placer.__file__).parent
    makers = {
        str(path.relative_to(package)): text
        for path in package.rglob("*.py")
        if _CONFIGURATION.search(text := path.read_text(encoding="utf-8"))
    }
    assert len(makers) >= 5
    left_on = [
        name
        for name, text in makers.items()
        if len(_SWITCHED.findall(text)) < len(_CONFIGURATION.findall(text))
    ]
    assert not left_on
