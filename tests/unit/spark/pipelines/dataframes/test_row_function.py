"""Functions of rows: what they return, and rows on which they raise."""

from typing import Any

import pyarrow as pa

from ottla.spark.pipelines.dataframes.row_function import called

WANTED = pa.schema([("id", pa.string()), ("half", pa.int64())])
REJECTED = pa.struct([(name, pa.string()) for name in ("reason", "error", "stack", "row")])


def halved(row: dict[str, Any]) -> Any:
    match row["number"]:
        case None:
            return None
        case 100:
            return [{"id": row["id"], "half": 50}, {"id": row["id"]}]
        case 7:
            return {"id": row["id"], "half": 3.5}
        case 8:
            return {"id": row["id"], "hafl": 4}
        case number if number % 2:
            raise LookupError(f"{number} is odd")
        case number:
            return {"id": row["id"], "half": number // 2}


def run(numbers: list[int | None], *, origin: bool) -> list[dict[str, Any]]:
    columns: dict[str, pa.Array] = {
        "id": pa.array([str(at) for at in range(len(numbers))]),
        "number": pa.array(numbers),
    }
    if origin:
        columns["_origin"] = pa.array([{"offset": at} for at in range(len(numbers))])
    rows: list[dict[str, Any]] = called(pa.RecordBatch.from_pydict(columns), halved, WANTED, REJECTED).to_pylist()
    return rows


def test_rows_none_and_several() -> None:
    assert [("0", 2, 0), ("2", 50, 2), ("2", None, 2)] == [
        (row["id"], row["half"], row["_origin"]["offset"]) for row in run([4, None, 100], origin=True)
    ]
    assert all(row["_rejected"] is None for row in run([4, None, 100], origin=True))


def test_a_row_on_which_it_raises_is_rejected_with_its_origin_and_the_stack() -> None:
    good, bad = run([2, 3], origin=True)
    assert ("0", None) == (good["id"], good["_rejected"])
    assert (None, {"offset": 1}) == (bad["id"], bad["_origin"])
    rejected = bad["_rejected"]
    assert ("3 is odd", "builtins.LookupError", None) == (rejected["reason"], rejected["error"], rejected["row"])
    assert "in halved" in rejected["stack"]
    assert rejected["stack"].endswith("LookupError: 3 is odd\n")


def test_without_an_origin_the_row_itself_is_kept() -> None:
    (bad,) = run([3], origin=False)
    assert '{"id": "0", "number": 3}' == bad["_rejected"]["row"]


def test_what_does_not_fit_the_schema_is_rejected() -> None:
    reasons = [row["_rejected"]["reason"] for row in run([7, 8], origin=True)]
    assert reasons[0].startswith("half=3.5 does not fit int64: ")
    assert "the function returned hafl, which is not a column of its schema: id, half" == reasons[1]


def test_no_rows() -> None:
    assert [] == run([], origin=True)
