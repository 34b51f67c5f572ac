"""Lines of keys in TOML texts."""

from ottla.spark.pipelines.declaration.toml_lines import line_of, lines_of

TEXT = '''\
name = "a"
text = """
[not.a.table]
key = 1
"""
[a.b]
c = 1
"d.e" = 2
f.g = { h = 1 }
[ a . "x y" ] # a remark
i = """one line"""
j = 1
'''


def test_lines() -> None:
    assert {
        ("name",): 1,
        ("text",): 2,
        ("a", "b"): 6,
        ("a", "b", "c"): 7,
        ("a", "b", "d.e"): 8,
        ("a", "b", "f"): 9,
        ("a", "b", "f", "g"): 9,
        ("a", "x y"): 10,
        ("a", "x y", "i"): 11,
        ("a", "x y", "j"): 12,
    } == lines_of(TEXT)


def test_what_stands_nowhere_is_placed_at_what_is_around_it() -> None:
    lines = lines_of(TEXT)
    assert (9, 6, 0) == (
        line_of(lines, ("a", "b", "f", "g", "h")),
        line_of(lines, ("a", "b", "z")),
        line_of(lines, ("z",)),
    )
