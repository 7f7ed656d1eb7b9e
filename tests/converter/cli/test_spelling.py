"""The library names options as Python spells them; the terminal shows flags."""

import pytest

from converter.cli.spelling import spell_flags


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("to='ONNX' is unknown", "--to ONNX is unknown"),
        ("require='cpu', not verify='weights'", "--require cpu, not --verify weights"),
        ("overwrite=True replaces it", "--force replaces it"),
        ("without strict_safety= it converts", "without --strict-safety it converts"),
        ("opset=7; expected 18 to 22", "--opset 7; expected 18 to 22"),
        ("give inputs=['x:int8:1,3', 'y:int8:'].", "give --input x:int8:1,3 --input y:int8:."),
        ("comparison.inputs='a.npz' holds no arrays", "--inputs a.npz holds no arrays"),
        ("a finite atol= or rtol=", "a finite --atol or --rtol"),
        ("trust=['MODULE=PATH'] does", "--trust MODULE=PATH does"),
        ("arch='a:b' without device=", "--arch a:b without --device"),
        ("format= and checkpoint= of it", "--from and --from-checkpoint of it"),
        ("load(device=1), 'to=3', x.device=2", "load(device=1), 'to=3', x.device=2"),
        ("layer Conv2D: dilations=(2, 2)", "layer Conv2D: dilations=(2, 2)"),
        ("include='all'; expected optimizer", "--include all; expected optimizer"),
        ("engine='threads', jobs=3", "--engine threads, --jobs 3"),
    ],
)  # fmt: skip
def test_options_are_spelled_as_flags(message: str, shown: str) -> None:
    assert spell_flags(message) == shown
