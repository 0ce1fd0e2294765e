"""Arguments of a command are those of the function that it calls."""

import argparse
import inspect

import pytest

import dpeffects as dpe
from dpeffects.cli.arguments import add_parameters, descriptions, values_for
from dpeffects.cli.commands import Parser
from dpeffects.cli.program import COMMANDS
from dpeffects.errors import OptionError


def estimate(
    formula: str,
    *,
    epsilon: float,
    trees: int = 5,
    variance: bool = True,
    quick: bool = False,
    adjusted: bool | None = None,
    **options,
):
    """Estimate.

    Parameters
    ----------
    formula, epsilon
        As everywhere.
    trees
        How many ``trees``, 50% of them small. More take longer.
    """


def read(*words, function=estimate):
    parser = Parser(prog="dpeffects")
    add_parameters(parser, function)
    return values_for(parser.parse_args(words), function)


def test_what_is_not_given_is_the_default_of_the_function():
    values = {"formula": "y ~ t", "epsilon": 1.0, "trees": 5, "variance": True, "quick": False}
    assert read("y ~ t", "--epsilon", "1") == values | {"adjusted": None}


def test_flags_pairs_and_types():
    more = ["--trees", "3", "--no-variance", "--quick", "--no-adjusted"]
    more += ["--option", "clip=0.1", "--option", "kind=fast", "--option", "limit=[1, 2]"]
    values = read("y ~ t", "--epsilon", "1", *more)
    assert (values["trees"], values["variance"], values["quick"]) == (3, False, True)
    assert (values["clip"], values["kind"], values["limit"]) == (0.1, "fast", [1, 2])
    assert values["adjusted"] is False
    with pytest.raises(OptionError, match="an argument of its own"):
        read("y ~ t", "--epsilon", "1", "--option", "trees=3")


def test_help_is_the_first_sentence_of_the_docstring(capsys):
    assert descriptions(estimate)["trees"] == "How many trees, 50%% of them small"
    with pytest.raises(SystemExit):
        read("--help")
    assert "How many trees, 50% of them small (default 5)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "function", "elsewhere"),
    [
        ("ate", dpe.dp_ate, ()),
        ("cate", dpe.dp_cate, ()),
        ("balance", dpe.dp_balance, ()),
        ("did", dpe.dp_did, ()),
        ("randomisation-test", dpe.dp_randomisation_test, ()),
        ("qte", dpe.dp_qte, ()),
        ("ordinal", dpe.dp_ordinal, ()),
        ("plan", dpe.plan, ()),
        ("plan-study", dpe.plan_study, ()),
        ("audit", dpe.audit, ("pairs", "library", "formula", "bounds")),
        ("bench", dpe.bench, ()),
        ("combine", dpe.combine, ()),
        ("release", dpe.site_release, ()),
    ],
)
def test_commands_have_all_parameters_of_their_functions(name, function, elsewhere):
    """What a function gains, its command has at once."""
    parser = argparse.ArgumentParser()
    next(command for command in COMMANDS if command.name == name).add_arguments(parser)
    parameters = inspect.signature(function).parameters.values()
    named = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
    assert named - set(elsewhere) <= {action.dest for action in parser._actions}
