"""Headless Chromium, for tests of pages; they skip where there is none."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
)
LIMIT_SECONDS = 60.0


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A driver of Debian's Chromium with an empty profile and its log of requests."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no Chromium: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield found
    finally:
        found.quit()


def open_page(driver: Any, path: Path) -> None:
    """Nothing; the page is there and its script has run to its end."""
    driver.get_log("browser")
    driver.get_log("performance")
    driver.get(path.as_uri())
    limit = time.monotonic() + LIMIT_SECONDS
    while driver.execute_script("return document.documentElement.dataset.ready") != "true":
        if time.monotonic() > limit:
            pytest.fail(f"the page is not ready after {LIMIT_SECONDS} s: {console(driver)}")
        time.sleep(0.05)


def console(driver: Any) -> list[str]:
    """What the console says since the page was opened."""
    return [row["message"] for row in driver.get_log("browser")]


def requests(driver: Any) -> list[str]:
    """Every address that a page out of a file asked for since it was opened, its own included
    (the browser's own first page asks for many)."""
    messages = [json.loads(row["message"])["message"] for row in driver.get_log("performance")]
    return [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
        and message["params"]["documentURL"].startswith("file:")
    ]
