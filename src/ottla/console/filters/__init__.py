"""The filter language of the record viewer. Pure: text in, a predicate out; it is never evaluated as code.

    value.user.id == 42 && key startsWith "a"
    headers["trace"] != null || size(value) > 1000
    value.items[0].name in ["apple", "pear"] and not (timestamp < "2024-05-01T12:00Z")
    "timeout"                                       a text alone: the key or the value contains it

| part | means |
|---|---|
| `key`, `value` | the text of the bytes, of a value with a schema its JSON; `null` if there is none |
| `value.user.id`, `value["user"].tags[0]` | a field of the decoded key or value; `null` if it does not exist |
| `headers["name"]` | the text of the last header of this name; `null` if it does not exist |
| `offset`, `partition`, `timestamp` | numbers; a timestamp is in ms since 1970, and compares with a time as text, too |
| `size(value)`, `lower(key)` | the number of bytes, characters or items; the text in lower case |
| `==` `!=` `<` `<=` `>` `>=` `in [...]` | compare; values of different types are never equal and have no order |
| `contains` `startsWith` `endsWith` `matches` | of texts; `matches` finds an RE2 pattern anywhere in the text |
| `&&` `and`, `||` `or`, `!` `not`, `( )` | combine |

Why a language of its own: the implementations of CEL for Python evaluate record by record and cannot say which part of
an expression may be checked on whole columns of bytes, which is where the speed of a search comes from.

`tokens.py` and `parser.py` read a filter, `syntax.py` has its parts, `evaluation.py` makes a predicate for one record,
`candidates.py` one for whole Arrow batches: its `masks.py` say which records pass, and which only the other can decide.
`batch_columns.py` has the columns that are compared, fields of JSON among them (`json_fields.pyx`),
`column_comparisons.py` the comparisons.
"""

from ottla.console.filters.errors import FilterError as FilterError
from ottla.console.filters.evaluation import predicate as predicate
from ottla.console.filters.parser import parse_filter as parse_filter
