"""The page as text: one file with everything in it, and what a notebook shows."""

import html
import json
import re
from math import comb

import pytest
from explore.models_to_explore import (
    LABELS,
    OTHER,
    OTHER_LABELS,
    SEQUENCES,
    fitted_regressor,
    ridge_classifier,
    sparse_classifier,
    view,
)
from small_models import sums

from cvxsnn import InvalidInputError, SpikingClassifier
from cvxsnn.core.errors import DataFileError
from cvxsnn.explore import Exploration, explore_both


@pytest.fixture(scope="module")
def exploration():
    return sparse_classifier().explore(SEQUENCES, LABELS, max_seconds=0)


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_the_page_has_every_section_and_all_values(exploration):
    page = exploration.html
    for section in ("quality", "optimality", "path", "neurons", "sequence", "health", "costs"):
        assert f'<section id="{section}"' in page
        assert f'href="#{section}"' in page
    model = data_of(page)["models"][0]
    assert model["quality"]["score"] == exploration.views[0].quality.score
    assert len(model["sequences"]) == len(exploration.views[0].sequences)
    assert f"{exploration.views[0].quality.score:.1%}" in page


def test_the_page_loads_nothing_and_is_small(exploration):
    page = exploration.html
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert "@import" not in page
    assert "url(" not in page[: page.index("</style>")]
    assert len(page) < 5e6
    assert "Permission to use, copy, modify" in page  # the licence of the libraries


def test_names_of_classes_are_text(exploration):
    page = exploration.html
    assert "<script>alert(1)" not in page
    assert data_of(page)["models"][0]["columns"] == list(exploration.views[0].columns)
    assert "<script>alert(1)</script>" in exploration.views[0].columns


def test_it_is_saved_whole_or_refused(exploration, tmp_path):
    path = exploration.save(tmp_path / "new" / "page.html")
    assert path.read_text() == exploration.html
    with pytest.raises(DataFileError, match="choose another file"):
        exploration.save(path / "page.html")


def test_a_notebook_shows_it_in_a_frame(exploration):
    frame = exploration._repr_html_()
    assert frame.startswith("<iframe srcdoc=")
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', frame)[1]) == exploration.html
    assert repr(exploration) == "Exploration(SpikingClassifier; save(path) writes a page)"


def test_training_data_are_called_so():
    model = sparse_classifier()
    assert "expect less on new data" in Exploration(view(model)).html
    assert "expect less on new data" not in Exploration(view(model, OTHER, OTHER_LABELS)).html


def test_regressors_have_pages():
    page = fitted_regressor().explore(SEQUENCES, sums(SEQUENCES), max_seconds=0).html
    assert data_of(page)["models"][0]["is_classifier"] is False


def test_two_models_are_compared_on_the_same_sequences():
    models = sparse_classifier(l1_strength=0.03), ridge_classifier()
    both = explore_both(models, OTHER, OTHER_LABELS, names=("sparse", "ridge"), max_seconds=0)
    right = [model.predict(OTHER) == OTHER_LABELS for model in models]
    expected = (right[0] & right[1], right[0] & ~right[1], ~right[0] & right[1], ~right[0] & ~right[1])
    assert both.comparison.counts == tuple(int(kind.sum()) for kind in expected)
    for kind, samples in zip(expected, both.comparison.samples, strict=True):
        assert kind[list(samples)].all()
    assert both.comparison.agreement == (models[0].predict(OTHER) == models[1].predict(OTHER)).mean()
    first, second = (tuple(own.sample for own in view.sequences) for view in both.views)
    assert first == second
    assert {sample for samples in both.comparison.samples for sample in samples} <= set(first)
    page = both.html
    assert '<section id="comparison"' in page
    assert "sparse and ridge" in page


def test_the_sign_test_is_that_of_coin_tosses():
    models = sparse_classifier(l1_strength=0.03), ridge_classifier()
    comparison = explore_both(models, OTHER, OTHER_LABELS, max_seconds=0).comparison
    _, wins, losses, _ = comparison.counts
    n = wins + losses
    fewer = min(wins, losses)
    tail = sum(comb(n, k) for k in range(fewer + 1)) / 2**n
    assert comparison.p_value == pytest.approx(min(1.0, 2 * tail) if wins != losses else 1.0)


def test_models_of_other_classes_are_not_compared():
    other = SpikingClassifier(hidden=(8,), l1_strength=0.01, random_state=0).fit(SEQUENCES, sums(SEQUENCES) > 0)
    with pytest.raises(InvalidInputError):
        explore_both((sparse_classifier(), other), SEQUENCES, LABELS, max_seconds=0)


def test_a_model_that_is_not_fitted_has_no_page():
    with pytest.raises(Exception, match="not fitted"):
        SpikingClassifier().explore(SEQUENCES, LABELS)
