"""The part of the estimators' docstrings that they have in common."""

PARAMETERS = """
    Parameters
    ----------
    method : str
        How to train: "cvx" samples hidden neurons and finds the optimal read-out; "sg" trains all layers by surrogate
        gradients; "sg-cvx", "sg-sg", "cvx-sg" are one after the other; "r", "r-cvx" are reservoirs.
    hidden : tuple of int, optional
        Widths of the hidden layers of one subnetwork. By default there is one layer, or two if a search finds that
        better, and the last one has 4,096 neurons in all subnetworks together; 1,024 for other methods than "cvx" and
        for threshold neurons.
    n_subnetworks : int, optional
        Number of subnetworks. By default one, but four if the search of "cvx" decides for two layers.
    witnesses : "auto", "gaussian", "delayed", mapping or WitnessSet
        The hidden neurons. "auto" searches for a family of neurons on held-out data, for methods that begin with a
        convex stage and unless any of decay, threshold, bias, gain, fan_in or threshold neurons are asked for.
        "gaussian" is the paper's family: decay 0.9, threshold 1, Gaussian weights. "delayed" samples neurons that read
        25 inputs each at random delays, with thresholds from the training data. A mapping is a family: arguments of
        :func:`cvxsnn.gaussian_witnesses` or, with a key ``"geometry"``, of :func:`cvxsnn.delayed_witnesses`, where
        ``hidden`` and ``n_subnetworks`` may be left out. A :class:`cvxsnn.WitnessSet` is used as it is.
    n_trials : int, optional
        Number of families that the search tries. By default half as many as there are sequences held out, but at
        least 64 and at most 192.
    max_tuning_seconds : float, optional
        Time after which the search takes the best family so far.
    neuron : "lif" or "threshold"
        Leaky integrate-and-fire neurons, or threshold neurons with dense recurrence.
    decay, threshold, bias, gain : number or Distribution, optional
        Dynamics of the neurons that are sampled. If nothing is searched for, decays are uniform between 0.5 and 1,
        thresholds and gains 1, and biases normal with standard deviation 0.5; for "delayed" neurons, decays and
        thresholds are 0, and there are no gains.
    fan_in : int, optional
        Number of lower neurons that a neuron above the first layer reads; by default all. For "delayed" neurons, the
        number of inputs that a neuron of any layer reads; by default 25.
    readout : "mean", "last" or "windows-k", optional
        Read the mean of the spikes over the steps, the spikes of the last step, or the means in k windows of time. By
        default what the search finds better of "mean" and "last", or the mean.
    windows : int, optional
        The number of windows of time, for readout "mean": each neuron is read in every window by a weight of its own.
    loss : str, optional
        The loss. {loss}
    penalty : "l1", "group", "elastic-net" or "group-elastic-net"
        The penalty of the read-out: a norm on every weight, or on the weights of a neuron together. The elastic nets
        add half the sum of squares, which lets the read-out be dense.
    l1_strength : float or "auto"
        Strength of the norm. "auto" follows the path of strengths and keeps the one that does best on held-out data,
        then solves again on all data. For the elastic nets it may be zero, which is ridge, and "auto" tries that too.
    l2_strength : float or "auto"
        Strength of the sum of squares, for the elastic nets. "auto" tries several, each with every ``l1_strength``;
        for other penalties, which have no squares, it is zero.
    intercept : bool
        Whether the read-out has an unpenalised constant.
    layout : "channels-last" or "channels-first", optional
        How arrays are read: (n_samples, n_steps, n_features), the default, or (n_samples, n_channels, n_steps) as in
        aeon and sktime, where a channel is a feature; likewise each array of a list. Tables always have one row per
        step.
    standardize : bool
        Whether each feature is shifted and scaled to mean 0 and variance 1 over the training data. ``network_`` reads
        the result.
    validation_fraction : float
        Share of the data held out to choose the family, the strength, or the best epoch.
    tol : float
        Relative gap to certify.
    surrogate : SurrogateSettings, optional
        Settings of gradient stages.{class_weight}
    device : str
        Where to compute, such as "cpu" or "cuda"; "auto" is the GPU if there is one.
    n_jobs : int, optional
        Number of workers of the search, as in joblib: None is one unless in a ``joblib.parallel_config`` context, -1
        is one per core. The model does not depend on it.
    random_state : int, RandomState or None
        Seed of neurons, held-out data and batches. None gives another model at every call of ``fit``.
    verbose : bool
        Whether to show a progress bar.

    Attributes
    ----------
    network_ : SpikingNetwork
        The trained network.
    certificate_ : Certificate or None
        The certificate of the read-out; None if it was not found by convex optimisation: nothing is proven then.
    history_ : History
        One summary per stage of training; prints as a table.
    n_features_in_ : int
        Number of features per step.
    feature_names_in_ : array of str
        Names of the features, if ``X`` has tables whose columns have names.
"""
