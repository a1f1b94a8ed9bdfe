from fitting.surrogate.runs import jobs_of_addition

from cvxsnn.fitting.surrogate.trainer import train_jobs


def test_networks_scored_simultaneously_score_as_each_does_alone():
    jobs = jobs_of_addition()[:6]
    for run, job in zip(train_jobs(jobs), jobs, strict=True):
        assert run.history[0].score == job.score(job.network)
        assert run.best.score == job.score(run.network)
