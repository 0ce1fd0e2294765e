"""Names of other packages' arguments are refused only where they are no option of a method."""

from dataclasses import fields

from dpeffects.errors import texts
from dpeffects.estimators import conditional_methods, registry, table_methods


def test_no_synonym_hides_an_option_of_a_method():
    specs = [*registry().values(), *conditional_methods().values(), *table_methods().values()]
    options = {field.name for spec in specs for field in fields(spec.options)}
    refused = {
        name for key in texts("dpeffects", "advice.toml")["synonyms"] for name in key.split()
    }
    assert not options & refused
    assert {"clip", "groups", "split", "outcome"} <= options
