"""docs/models.md says what the tests check."""

from __future__ import annotations

from tests.support import models_page


def test_the_page_is_current() -> None:
    stale = "docs/models.md differs from the tests; run `python -m tests.support.models_page`"
    assert models_page.PAGE.read_text(encoding="utf-8") == models_page.page(), stale
