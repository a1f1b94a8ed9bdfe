from cvxsnn.app.rates import measure_rates


def test_every_rate_of_this_machine_is_measured_and_finite():
    rates = measure_rates(seconds=0.0)
    assert rates.device == "cpu"
    assert all(0 < rate < 1e18 for rate in (rates.neuron_macs, rates.products, rates.dense_macs))
