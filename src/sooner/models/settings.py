"""A configuration as its source wrote it, read by our names: every value is checked, every complaint in its words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sooner.errors import ModelError
from sooner.weights.files import shorten


def require(ok: bool, message: str) -> None:
    if not ok:
        raise ModelError(f"{message}; the configuration is damaged or not supported")


class Settings:
    """`keys` maps our names to the source's, which is the same where it is not listed. `defaults` go by our names."""

    def __init__(
        self,
        values: Mapping[str, Any],
        keys: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self._values = values
        self._keys = keys or {}
        self._defaults = defaults or {}

    def key(self, name: str) -> str:
        return self._keys.get(name, name)

    def get(self, name: str) -> Any:
        """None where it is missing and has no default, or where the source says null."""
        return self._values.get(self.key(name), self._defaults.get(name))

    def whole(self, name: str, default: int | None = None) -> int:
        """A missing or null value takes the default; without one it is an error."""
        value = default if (found := self.get(name)) is None else found
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > 1 << 64:
            raise self._wrong(name, value, "a whole number")
        return value

    def real(self, name: str, default: float | None = None) -> float:
        value = default if (found := self.get(name)) is None else found
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e300:
            raise self._wrong(name, value, "a finite number")
        return float(value)

    def optional(self, name: str) -> float | None:
        """A number, or None where there is none."""
        return None if self.get(name) is None else self.real(name)

    def flag(self, name: str) -> bool:
        """False unless it is said."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return bool(value)

    def choice(self, name: str, table: Mapping[str, Any]) -> Any:
        """What the table has for a value."""
        value = self.get(name)
        if not isinstance(value, str) or value not in table:
            raise self._unsupported(name, value, table)
        return table[value]

    def reals(self, name: str, count: int) -> list[float]:
        """A list of `count` positive numbers."""
        values = self.get(name)
        good = isinstance(values, list) and all(isinstance(v, int | float) and 0 < v < 1e300 for v in values)
        if not good or len(values) != count:
            raise self._wrong(name, values, f"{count} positive numbers")
        return [float(value) for value in values]

    def tokens(self, name: str) -> frozenset[int]:
        """One id, a list of ids, or null."""
        key, listed = self.key(name), self.get(name)
        ids = listed if isinstance(listed, list) else [listed]
        return frozenset(Settings({key: token}).whole(key) for token in ids if token is not None)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """An object; empty where it is missing."""
        value = self.get(name)
        if value is not None and not isinstance(value, dict):
            raise self._wrong(name, value, "an object")
        return value or {}

    def refuse(self, neutral: Mapping[str, tuple[object, ...]]) -> None:
        """Settings that would change the computation must have a value under which they do not, or be missing."""
        for name, allowed in neutral.items():
            value = self.get(name)
            if value is not None and not any(type(value) is type(each) and value == each for each in allowed):
                raise self._unsupported(name, value, map(repr, allowed))

    def _wrong(self, name: str, value: object, wanted: str) -> ModelError:
        return ModelError(f"{self.key(name)} is {shorten(value)}, must be {wanted}; the configuration is damaged")

    def _unsupported(self, name: str, value: object, supported: Iterable[str]) -> ModelError:
        what = f"{self.key(name)} is {shorten(value)}, which is not supported"
        return ModelError(f"{what}; supported: {', '.join(supported)}")


def refuse_unknown(keys: Iterable[str], known: Iterable[str], what: str) -> None:
    """A setting that we do not know may change the computation."""
    unknown = sorted(set(keys) - set(known))
    if unknown:
        raise ModelError(f"{unknown[0]} is not known here, so this kind of {what} is not supported")
