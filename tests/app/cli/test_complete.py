import json
import sys
from pathlib import Path

from app.test_check_certificate import HONEST
from app.test_checked_certificates import assert_status_without_reader


def test_a_reader_that_leaves_does_not_change_the_status_of_a_check(tmp_path):
    path = Path(tmp_path / "proof.json")
    path.write_text(json.dumps(HONEST[0]))
    assert_status_without_reader([sys.executable, "-c", "import cvxsnn.app.cli as c; c.app()", "check", str(path)], 0)
