"""Tables as data files of the commands."""

import re

import numpy as np
import pandas
import pytest
from cli.commands import fail, run, succeed
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from small_models import classes_of, classifier, make_lists, make_sequences, sums

import cvxsnn as cs
from cvxsnn import SequenceImputer, load, save
from cvxsnn.data import sequences_from_table

LISTS = make_lists()
LABELS = np.array(["low", "high"])[classes_of(LISTS)]
IDS = [f"{n:03d}" for n in range(len(LISTS))]
TABLE = pandas.concat(
    [
        pandas.DataFrame(sequence, columns=["x", "y", "z"]).assign(case=name, step=range(len(sequence)), kind=label)
        for sequence, name, label in zip(LISTS, IDS, LABELS, strict=True)
    ],
    ignore_index=True,
)
QUICK = ["--hidden", "12", "--strength", "0.003", "--decay", "0.8"]
COLUMNS = ["--id", "case", "--time", "step"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    TABLE.sample(frac=1, random_state=0).sort_values("case", kind="stable").to_csv("long.csv", index=False)
    TABLE.to_parquet("long.parquet")


def test_a_long_table_is_fitted_predicted_and_certified():
    fitted = succeed("fit", "long.csv", "-o", "model", *COLUMNS, "--label", "kind", *QUICK).stdout
    lengths = [len(sequence) for sequence in LISTS]
    assert f"read: 48 sequences of {min(lengths)} to {max(lengths)} steps with 3 features" in fitted
    model = load("model")
    assert model.feature_names_in_.tolist() == ["x", "y", "z"]
    X = [pandas.DataFrame(sequence, columns=["x", "y", "z"]) for sequence in LISTS]
    for name in ("long.csv", "long.parquet"):
        outcome = succeed("predict", "model", name, *COLUMNS, "--label", "kind", "--proba", "-o", "out.csv")
        assert f"score against y: {model.score(X, LABELS):.4f}" in outcome.stderr
        found = pandas.read_csv("out.csv", dtype={"case": str}, float_precision="round_trip")
        assert found.columns.tolist() == ["case", "y", "probability_high", "probability_low"]
        assert found["case"].tolist() == IDS
        assert found["y"].tolist() == model.predict(X).tolist()
        np.testing.assert_array_equal(found.iloc[:, 2:], model.predict_proba(X))
        assert "proven: no other" in succeed("certify", "model", name, *COLUMNS, "--label", "kind").stdout


def test_other_columns_and_their_order_do_not_matter_to_a_model_with_names():
    succeed("fit", "long.csv", "-o", "model", *COLUMNS, "--label", "kind", *QUICK)
    expected = succeed("predict", "model", "long.csv", *COLUMNS).stdout
    TABLE[["z", "kind", "step", "y", "x", "case"]].assign(remark="fine").to_csv("other.csv", index=False)
    assert succeed("predict", "model", "other.csv", *COLUMNS).stdout == expected
    assert expected.splitlines()[0] == "case,y"
    TABLE.drop(columns="x").to_csv("less.csv", index=False)
    fail("expected a column 'x' in the table", "predict", "model", "less.csv", *COLUMNS)
    fail("expected --id and --time, or --series, for a model of sequences", "predict", "model", "long.csv")


def test_a_model_of_arrays_reads_tables_without_a_warning():
    np.savez("data.npz", X=make_sequences(), y=classes_of(make_sequences()))
    succeed("fit", "data.npz", "-o", "model", *QUICK)
    outcome = succeed("predict", "model", "long.csv", *COLUMNS, "--features", "x,y,z")
    assert outcome.stderr == ""
    assert len(outcome.stdout.splitlines()) == len(LISTS) + 1


def test_a_table_of_rows_is_fitted_and_predicted():
    rows = make_sequences()[:, 0]
    table = pandas.DataFrame(rows, columns=["x", "y", "z"]).assign(name=range(48), kind=classes_of(rows))
    table.to_csv("rows.csv", index=False)
    fitted = succeed("fit", "rows.csv", "-o", "model", "--id", "name", "--label", "kind", *QUICK).stdout
    assert "read: 48 rows, each a step of 3 features" in fitted
    lines = succeed("predict", "model", "rows.csv", "--id", "name").stdout.splitlines()
    assert lines[1:] == [f"{n},{y}" for n, y in enumerate(load("model").predict(table[["x", "y", "z"]]))]
    assert len(succeed("predict", "model", "rows.csv").stdout.split()) == 48
    assert succeed("predict", "model", "rows.csv", "--proba").stdout.startswith("y,probability_0,probability_1\n")


def test_a_table_of_series_is_fitted_and_predicted():
    rows = make_sequences()[:, :, 0]
    table = pandas.DataFrame(rows).assign(kind=sums(rows))
    table.loc[3, 2:3] = np.nan
    table.to_csv("series.csv", index=False)
    fitted = succeed("fit", "series.csv", "-o", "model", "--series", "--label", "kind", "--regress", *QUICK).stdout
    assert "read: 48 sequences of 2 to 4 steps with 1 feature" in fitted
    parts = [row[:2, None] if n == 3 else row[:, None] for n, row in enumerate(rows)]
    found = succeed("predict", "model", "series.csv", "--series", "--label", "kind").stdout.split()
    np.testing.assert_allclose(np.array(found, float), load("model").predict(parts))


def test_probabilities_and_ids_are_written_to_an_archive():
    succeed("fit", "long.csv", "-o", "model", *COLUMNS, "--label", "kind", *QUICK)
    succeed("predict", "model", "long.csv", *COLUMNS, "--proba", "-o", "out.npz")
    with np.load("out.npz", allow_pickle=False) as archive:
        assert archive["ids"].tolist() == IDS
        assert archive["proba"].shape == (len(LISTS), 2)


def test_a_pipeline_fills_the_gaps_of_a_table():
    found = sequences_from_table(TABLE, "case", "step", "kind")
    save(make_pipeline(SequenceImputer(), classifier(decay=0.8)).fit(found.X, found.y), "model")
    TABLE.assign(x=TABLE["x"].where(TABLE.index % 7 != 4)).to_csv("gap.csv", index=False)
    lines = succeed("predict", "model", "gap.csv", *COLUMNS).stdout.splitlines()
    assert len(lines) == len(LISTS) + 1
    assert "proven: no other" in succeed("certify", "model", "long.csv", *COLUMNS, "--label", "kind").stdout


def test_an_array_with_channels_first_is_fitted_and_predicted():
    np.savez("data.npz", X=make_sequences().swapaxes(1, 2), y=classes_of(make_sequences()))
    succeed("fit", "data.npz", "-o", "model", "--layout", "channels-first", *QUICK)
    assert load("model").n_features_in_ == 3
    assert len(succeed("predict", "model", "data.npz").stdout.split()) == 48


def test_what_cannot_be_read_is_one_sentence():
    TABLE.assign(x=TABLE["x"].astype(object).where(TABLE.index != 4, "?")).to_csv("text.csv", index=False)
    TABLE.assign(x=TABLE["x"].where(TABLE.index != 4)).to_csv("gap.csv", index=False)
    pandas.DataFrame(make_sequences()[:, 0]).assign(y=sums(make_sequences())).to_csv("rows.csv", index=False)
    np.savez("data.npz", X=make_sequences(), y=sums(make_sequences()))
    label = ["--label", "kind"]
    fail("expected a data file at missing.csv", "fit", "missing.csv", "-o", "new", *label)
    fail(r"expected numbers in column 'x', got '\?' in row 4", "fit", "text.csv", "-o", "new", *COLUMNS, *label)
    fail(
        "got 1 missing value, the first in column 'x' of sequence '.*--impute linear",
        "fit",
        "gap.csv",
        "-o",
        "new",
        *COLUMNS,
        *label,
    )
    fail("expected --label to name the column to predict", "fit", "long.csv", "-o", "new", *COLUMNS)
    fail("expected a .csv or .parquet file for --id", "fit", "data.npz", "-o", "new", *COLUMNS)
    succeed("fit", "data.npz", "-o", "model", "--regress", *QUICK)
    fail("expected a classifier that predicts probabilities", "predict", "model", "data.npz", "--proba")


@pytest.mark.parametrize("shape", ["long", "rows", "series"])
def test_groups_are_a_column_that_is_no_feature(shape, monkeypatch):
    given = []
    monkeypatch.setattr(cs.SpikingClassifier, "fit", spy_on(cs.SpikingClassifier.fit, given))
    people = [f"person {int(name) % 6}" for name in IDS]
    values = make_sequences()[:, :, 0]
    table = {
        "long": TABLE.assign(person=TABLE["case"].map(dict(zip(IDS, people, strict=True)))),
        "rows": pandas.DataFrame(values).assign(kind=classes_of(values), person=people),
        "series": pandas.DataFrame(values).assign(kind=classes_of(values), person=people),
    }[shape]
    table.to_csv("table.csv", index=False)
    options = {"long": COLUMNS, "rows": [], "series": ["--series"]}[shape]
    fit = ["fit", "table.csv", "-o", "model", *options, "--label", "kind", *QUICK]
    succeed(*fit, "--groups", "person")
    assert given[0].tolist() == people
    assert load("model").n_features_in_ == {"long": 3, "rows": 4, "series": 1}[shape]
    succeed("predict", "model", "table.csv", *options, *["--features", "0,1,2,3"] * (shape == "series"))
    table.loc[3, "person"] = None if shape != "long" else "another"
    table.to_csv("table.csv", index=False)
    message = (
        "one label per sequence in column 'person'" if shape == "long" else "a group in every row of column 'person'"
    )
    fail(message, *fit, "--groups", "person")
    fail("expected a column 'team' in the table", *fit, "--groups", "team")
    fail("expected different columns for different roles, got 'kind' more than once", *fit, "--groups", "kind")


def spy_on(fit, given):
    def spied(*data, groups, **others):
        given.append(groups)
        return fit(*data, groups=groups, **others)

    return spied


def test_groups_of_an_archive_are_refused():
    np.savez("data.npz", X=make_sequences(), y=classes_of(make_sequences()))
    fail("and --groups, got data.npz", "fit", "data.npz", "-o", "model", "--groups", "person", *QUICK)


MESSY = ["--id", "case", "--time", "step", "--label", "kind", "--groups", "person", *QUICK]


def write_messy():
    """Write a table of persons with a word and empty cells among its numbers."""
    people = TABLE["case"].map({name: f"person {int(name) % 6}" for name in IDS})
    messy = TABLE.assign(person=people, x=TABLE["x"].astype(object), y=TABLE["y"].where(TABLE.index % 9 != 4))
    messy.iloc[[7, 20], messy.columns.get_loc("x")] = "err"
    messy.to_csv("messy.csv", index=False)
    return messy


def test_missing_values_are_refused_with_their_column_and_number_unless_they_are_imputed():
    messy = write_messy()
    n_missing = int(messy["y"].isna().sum())
    fit = ["fit", "messy.csv", "-o", "model", *MESSY, "--missing", "?, err"]
    outcome = run(*fit)
    assert outcome.exit_code == 1
    first, second = outcome.stderr.splitlines()
    assert "got 2 missing values, the first in column 'x' of sequence" in first
    assert f"got {n_missing} missing values, the first in column 'y' of sequence" in second
    assert all("fill them with --impute linear" in line for line in (first, second))
    succeed(*fit, "--impute", "linear", "--class-weight", "balanced")
    clean = messy.assign(x=pandas.to_numeric(messy["x"], errors="coerce"))
    found = sequences_from_table(clean, "case", "step", "kind", ["x", "y", "z"])
    filled = SequenceImputer().fit_transform(found.X)
    people = sequences_from_table(clean, "case", "step", "person", ["x", "y", "z"]).y
    expected = clone(load("model")[-1])
    assert expected.class_weight == "balanced"
    expected.fit(filled, found.y, groups=people)
    np.testing.assert_array_equal(load("model").predict_proba(found.X), expected.predict_proba(filled))
    data = ["messy.csv", "--id", "case", "--time", "step", "--missing", "err"]
    assert len(succeed("predict", "model", *data).stdout.splitlines()) == len(LISTS) + 1
    assert "proven: no other" in succeed("certify", "model", *data, "--label", "kind").stdout


def test_everything_that_is_wrong_with_a_table_is_said_at_once():
    messy = write_messy().reset_index(drop=True)
    of_first = messy["case"] == IDS[0]
    messy.loc[of_first, "kind"] = None
    messy.loc[messy.index[messy["case"] == IDS[1]][0], "person"] = "another"
    pandas.concat([messy, messy.iloc[-1:]]).to_csv("messy.csv", index=False)
    outcome = run("fit", "messy.csv", "-o", "model", *MESSY)
    expected = [
        "numbers in column 'x', got 'err' in row 7 and 1 other cell: name words for missing values with --missing",
        "got 18 missing values, the first in column 'y'",
        f"one label per sequence in column 'kind', got none in sequence '{IDS[0]}'",
        f"every time once per sequence, got {messy['step'].iloc[-1]} more than once in sequence '{IDS[-1]}'",
        f"one label per sequence in column 'person', got 'another', 'person 1' in sequence '{IDS[1]}'",
    ]
    for line, words in zip(outcome.stderr.splitlines(), expected, strict=True):
        assert line.startswith("cvxsnn: expected "), line
        assert words in line
    many = pandas.DataFrame({f"x{n}": ["word"] * 9 for n in range(30)}).assign(kind=None)
    many.to_csv("many.csv", index=False)
    *lines, last = run("fit", "many.csv", "-o", "model", "--label", "kind").stderr.splitlines()
    assert "a label in every row of column 'kind', got none in row 0 and 8 other rows" in lines[0]
    assert (len(lines), last) == (20, "cvxsnn: and 11 more complaints about this file")


@pytest.mark.parametrize("is_grouped", [True, False])
def test_cross_validation_leaves_out_whole_groups(is_grouped, monkeypatch):
    write_messy()
    fits = []
    monkeypatch.setattr(cs.SpikingClassifier, "fit", spy_on(cs.SpikingClassifier.fit, fits))
    options = MESSY if is_grouped else [*MESSY[:6], "--features", "x,y,z", *QUICK]
    fit = ["fit", "messy.csv", "-o", "model", *options, "--missing", "err", "--impute", "mean"]
    line = succeed(*fit, "--cv", 3).stdout.splitlines()[1]
    number = r"[01]\.\d{4} \(folds [01]\.\d{4} to [01]\.\d{4}\)"
    of = "groups" if is_grouped else "samples"
    assert re.fullmatch(f"cross-validated in 3 folds of {of}: accuracy {number}, balanced accuracy {number}", line)
    if is_grouped:
        *of_folds, of_all = map(set, fits)
        assert [len(of_all - people) for people in of_folds] == [2, 2, 2]
        assert set.union(*(of_all - people for people in of_folds)) == of_all
        fail("expected --cv of at most 6, the number of groups, got 7", *fit, "--cv", 7)
    else:
        assert fits == [None] * 4


def test_a_regression_is_cross_validated():
    rows = make_sequences()
    np.savez("data.npz", X=rows, y=sums(rows))
    shown = succeed("fit", "data.npz", "-o", "model", "--regress", "--cv", 2, *QUICK).stdout
    assert shown.startswith("cross-validated in 2 folds of samples: R² ")
    complaint = "expected --class-weight without --regress"
    fail(complaint, "fit", "data.npz", "-o", "new", "--regress", "--class-weight", "balanced")
    complaint = "expected --impute with steps before channels"
    fail(complaint, "fit", "data.npz", "-o", "new", "--impute", "mean", "--layout", "channels-first")


def test_missing_words_are_those_of_csv_files():
    fit = ["fit", "long.parquet", "-o", "new", *COLUMNS, "--label", "kind", "--missing=-999"]
    fail("expected a CSV file with --missing", *fit)
