"""Which views a query reads."""

import pytest

from ottla.spark.pipelines.declaration.sql_relations import first_word, relations_of, statements_of


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT 1", []),
        ("select a, b from orders", ["orders"]),
        ("SELECT * FROM a JOIN b ON a.x = b.x LEFT OUTER JOIN c USING (x, y)", ["a", "b", "c"]),
        ("SELECT * FROM a x, b AS y, c", ["a", "b", "c"]),
        ("SELECT * FROM a JOIN b ON f(a.x, c) = 1, d", ["a", "b", "d"]),
        ("SELECT * FROM (SELECT * FROM a, b) s, c WHERE x IN (SELECT y FROM d)", ["a", "b", "c", "d"]),
        ("SELECT (SELECT max(x) FROM b) FROM a", ["b", "a"]),
        ("SELECT * FROM (a JOIN b ON a.x = b.x) JOIN (c)", ["a", "b", "c"]),
        ("SELECT extract(YEAR FROM at), trim(BOTH 'x' FROM name) FROM a", ["a"]),
        ("SELECT a IS DISTINCT FROM b, c IS NOT DISTINCT FROM d FROM e", ["e"]),
        ("SELECT x FROM a GROUP BY b, c ORDER BY d, e", ["a"]),
        ("SELECT * FROM a UNION ALL SELECT * FROM b", ["a", "b"]),
        ("WITH t AS (SELECT * FROM a), u(x) AS (SELECT 1 FROM b) SELECT * FROM t JOIN u JOIN c", ["a", "b", "c"]),
        ("SELECT * FROM a LATERAL VIEW explode(m) t AS k, v JOIN b", ["a", "b"]),
        ("SELECT * FROM range(5) r, explode(array(1)) e, a, LATERAL (SELECT * FROM b)", ["a", "b"]),
        ("SELECT * FROM VALUES (1, 2) AS t(a, b) JOIN c", ["c"]),
        ("FROM a SELECT x", ["a"]),
        ("FROM a |> WHERE x > 1 |> JOIN b USING (k)", ["a", "b"]),
        ("SELECT * FROM `a b` JOIN `c``d`", ["a b", "c`d"]),
        ("SELECT * FROM cat.db.t", ["cat.db.t"]),
        ("SELECT * FROM STREAM a JOIN stream(b)", ["a", "b"]),
        ("SELECT 'x FROM y', \"FROM z\" -- FROM u\n/* FROM v */ FROM a", ["a"]),
        ("SELECT * FROM a WHERE s = 'it''s' AND t = 'a\\'b' -- ' FROM b", ["a"]),
        ("SELECT * FROM A JOIN a", ["A"]),
        ("SELECT * FROM", []),
        ("SELECT ((((", []),
        (")))) FROM a", ["a"]),
        ("SELECT 1 FROM 'unclosed", []),
    ],
)
def test_relations(query: str, expected: list[str]) -> None:
    assert expected == [relation.name for relation in relations_of(query)]


def test_lines() -> None:
    assert [("a", 2), ("b", 4)] == [(each.name, each.line) for each in relations_of("SELECT *\nFROM a\n-- x\nJOIN b")]


def test_statements() -> None:
    assert [0, 0, 1, 1, 2] == [
        statements_of(text) for text in ("", "-- only words\n;", "SELECT ';'", "SELECT 1;\n", "a;b")
    ]
    assert ["SELECT", "INSERT", ""] == [first_word(text) for text in ("-- x\n((select 1))", "insert into a", "")]
