"""Wrong rules: each patch fits the engine as it is; some are run through the public command here, all of them by
`sooner certify --controls`.
"""

import shutil
from pathlib import Path

import pytest

import sooner
from sooner.certify.controls import controls, run_control, spoiled_copy
from sooner.certify.wrong_rules import CLASSIC, OF_TREES, WRONG_RULES, Patch
from sooner.errors import InputError

BY_NAME = {rule.name: rule for rule in WRONG_RULES}


def test_every_patch_fits() -> None:
    assert len(CLASSIC) == 9
    assert len(BY_NAME) == len(CLASSIC) + len(OF_TREES)
    original = Path(sooner.__file__).parent
    for rule in WRONG_RULES:
        with spoiled_copy(rule) as folder:
            for patch in rule.patches:
                spoiled = (folder / "sooner" / patch.file).read_text()
                assert spoiled != (original / patch.file).read_text()
                compile(spoiled, patch.file, "exec")


def test_a_patch_that_no_longer_fits_is_an_error(tmp_path: Path) -> None:
    shutil.copy(Path(sooner.__file__).parent / "errors.py", tmp_path)
    with pytest.raises(InputError, match=r"errors.py has 0 times 'no such line'.*wrong_rules.py up to date"):
        Patch("errors.py", "no such line", "").apply(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("noise of block keyed by position, so that rounds share it", "laws"),
        ("q recorded before top-k and top-p, the draft sampled after", "distribution"),
        ("the kept path of a tree taken from its first nodes", "tokens"),
    ],
)
def test_a_wrong_rule_is_caught_through_the_command(name: str, part: str) -> None:
    report = run_control(BY_NAME[name], 0, part)
    assert (report["verdict"], report["exit_code"]) == ("fail", 1)
    assert not report["parts"][part]["ok"]


def test_a_control_that_is_not_caught_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    clean = {"verdict": "pass", "exit_code": 0, "parts": {"laws": {"ok": True, "checks": []}}}
    monkeypatch.setattr("sooner.certify.controls.run_control", lambda rule, seed: clean)
    for job in controls(0).jobs:
        [check] = job.run()
        assert not check.ok and check.text == "not caught"
