"""JAAS configurations are read as Java reads them; errors never show a secret."""

import pytest

from ottla.model.errors import InvalidConfigError
from ottla.security.jaas import PLAIN_MODULE, SCRAM_MODULE, parse_jaas


def test_users_of_plain() -> None:
    module = parse_jaas(
        f'{PLAIN_MODULE} required\n  username="admin" password="admin-secret"\n  user_admin="admin-secret"'
        ' user_al.ice="se cret,;=" ;  '
    )

    assert (PLAIN_MODULE, "admin", "admin-secret") == (module.module, module.username, module.password)
    assert {"admin": "admin-secret", "al.ice": "se cret,;="} == module.users


def test_escapes_and_unquoted_values() -> None:
    module = parse_jaas(f'{SCRAM_MODULE} Required username=alice password="a\\"b\\\\c\\u0041\\101" tokenauth=\'true\';')

    assert ("alice", 'a"b\\cAA', "true") == (module.username, module.password, module.options["tokenauth"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        PLAIN_MODULE,
        f"{PLAIN_MODULE} required",
        f'{PLAIN_MODULE} required username="hunter2"',
        f'{PLAIN_MODULE} perhaps password="hunter2";',
        f'{PLAIN_MODULE} required password="hunter2" password="hunter2";',
        f'{PLAIN_MODULE} required password "hunter2";',
        f'{PLAIN_MODULE} required "password"="hunter2";',
        f'{PLAIN_MODULE} required password="hunter2;',
        f'{PLAIN_MODULE} required password="hunter2"; {PLAIN_MODULE} required;',
        f"{PLAIN_MODULE} required password=hunter2!;",
        '"x" required;',
    ],
)
def test_what_is_not_a_configuration_is_refused_without_its_secret(text: str) -> None:
    with pytest.raises(InvalidConfigError) as error:
        parse_jaas(text)

    assert "hunter2" not in str(error.value)


def test_options_are_not_shown() -> None:
    assert f"JaasModule({PLAIN_MODULE})" == repr(parse_jaas(f'{PLAIN_MODULE} required password="x";'))
