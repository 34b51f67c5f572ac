"""Makes `topic_patterns.txt` anew: `python -m tests.golden.coordination.make_topic_patterns`.

On each line a pattern, a tab, and which of `NAMES` RE2/J, as Kafka 4.3.0 has it, matches whole; or `!` if it refuses
the pattern. Some are chosen, more are put together by chance. Needs Java and Maven (see `tests/compat/prepare`).
"""

import random
import tempfile
from pathlib import Path
from typing import Final

from tests.compat.kafka_jars import compile_java, kafka_tool

HERE: Final = Path(__file__).parent
NAMES: Final = (
    "a", "b", "A", "ab", "ba", "aa", "bb", "aab", "abab", "a.b", "a-b", "a_b", "foo", "Foo", "foo.bar", "foo-1",
    "foo_2", "orders", "orders.v1", "orders.v10", "orders-eu", "__consumer_offsets", "x9", "0", "42", "...", "a1b2",
    "zzz", "bar",
)  # fmt: skip
CHOSEN: Final = r"""
foo
foo.*
.*
.+

^foo$
foo$
^foo
(foo|bar)
foo|bar.*
[a-c]+
[^a-z]+
[a-zA-Z0-9._-]*
[]a]
[^]a]
[a-]
[-a]
[a\-z]+
[a
[z-a]
[[:alpha:]]+
[[:^alpha:]]+
[[:digit:][:punct:]]+
[[:nope:]]
[[.a.]]
\d+
\D+
\w+
\W
\s
\S+
[\d.]+
[\W]+
[^\w]+
\p{L}+
\pL+
\p{Lu}.*
\P{Lu}+
\p{^Lu}+
\p{Latin}+
\p{Greek}
\p{Nope}
\pX
\p
a*
a+
a?
a??
a*?b
a+?b
a**
a*+
a++
a?+
a{2}
a{1,}
a{0,2}b?
a{,2}
a{2,1}
a{1001}
a{1000}
(a{100}){100}
a{
a{x}
{2}
*
+a
?
(*a)
|
a|
|a
(|a)
()
()*
(a|b)*
(?:a|b)+
(?P<x>a)b
(?P=x)
(?<x>a)b
(?=a)a
(?!a)b
(?<=a)b
(?<!a)b
(?>a)
(?i)FOO
(?i:f)oo
(?i:F)OO
(?i)f(?-i)oo
(a(?i)b)A
(?s).*
(?m)^a$
(?U)a+b
(?x)a
(?i
(?
(
)
a)
(a
((a)
\bfoo\b.*
foo\b.*
fo\bo
fo\Bo
.*\bbar
\Aa\z
a\Z
\Qa.b\E
\Qa.b
\Qa.b\E+
\Q\E
\1
(a)\1
\a
\n
\x61
\x{61}b
\x{110000}
\x6
\x
\0
\061
\141
\C
\y
\-
\.
\_
\é
é
.*é
a b
orders\.v\d{1,2}
orders\.v\d
.*\.v[0-9]+$
__.*
(__)?.*s
a^b
a$b
(^a|b$)
^*a
$*
(?:)
(?:^)*a
(a*)*
(a*)+
(a|a)*b
((a+)+)+b
[a-z]{2}\d?
[\x61-\x63]+
[\Qa]
[a\Q]
[[:alpha:]-z]
[a-\d]
[\d-z]
[\b]
[--z]+
[+--]+
[a-z&&[b]]
\u0061
\cA
\h
\R
\X
\G
\e
(?#x)a
""".strip("\n").split("\n")
PIECES: Final = (
    "a", "b", "1", ".", "\\.", "\\w", "\\d", "[ab]", "[^a]", "(", ")", "(?:", "|", "*", "+", "?", "{2}", "{0,1}", "^",
    "$", "\\b", "\\B", "foo", "[a-c]", "(?i)", "-", "_",
)  # fmt: skip


def by_chance() -> list[str]:
    """Patterns out of random pieces, many of which are not valid."""
    dice = random.Random(848)
    made = ["".join(dice.choices(PIECES, k=dice.randint(2, 9))) for _ in range(1500)]
    return list(dict.fromkeys(made))


def main() -> None:
    """Compiles the program, runs it over all patterns, and keeps what it printed."""
    with tempfile.TemporaryDirectory(prefix="ottla-golden-") as folder:
        patterns, names = Path(folder) / "patterns", Path(folder) / "names"
        patterns.write_text("\n".join([*CHOSEN, *by_chance()]) + "\n", encoding="utf-8")
        names.write_text("\n".join(NAMES) + "\n", encoding="utf-8")
        compile_java(HERE / "TopicPatterns.java", Path(folder))
        done = kafka_tool("TopicPatterns", str(patterns), str(names), extra_path=folder)
    (HERE / "topic_patterns.txt").write_text(done.stdout, encoding="utf-8")


if __name__ == "__main__":
    main()
