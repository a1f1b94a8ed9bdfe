"""The part of the estimators' docstrings that they have in common."""

PARAMETERS = """
    Parameters
    ----------
    method : str
        How to train: "cvx" samples hidden neurons and finds the optimal read-out; "sg" trains all layers by surrogate
        gradients; "sg-cvx", "sg-sg" and "cvx-sg" have two stages; "r", "r-cvx" are reservoirs.
    hidden : tuple of int, optional
        Widths of the hidden layers of one subnetwork, instead of ``n_neurons``.
    n_subnetworks : int, optional
        Number of subnetworks. By default one, but four if a search decides for two layers.
    n_neurons : int or "auto"
        Number of neurons of one hidden layer, in all subnetworks together. For mixed witnesses "auto" is 8,192, or
        16,384 if that lowers the leave-one-out error noticeably and there are at most 5,000 samples. For others it is
        4,096, but 1,024 for other methods than "cvx" and for threshold neurons.
    max_seconds : float, optional
        Time for a fit of mixed witnesses with their default penalty and loss. What would end later, judged by the
        trials so far, is not begun, and the best choice so far is solved and certified; :meth:`summary` says so. Always
        done are the first trial, of 2,048 neurons and at most 1,000 samples, the spikes of these neurons for all
        samples, and the solve; with ``n_neurons`` or ``sparsity``, what these ask for. A fit takes longer by as much as
        these do, and by the reading of the data.
    witnesses : "auto", "mixed", "search", "gaussian", "delayed", mapping or WitnessSet
        The hidden neurons. "mixed" samples one layer from several families of neurons with delays, whose thresholds and
        weights come from the training data, and chooses the mixture by leave-one-out errors. "search" searches for one
        family on held-out data. "auto" is "mixed" for the method "cvx" unless dynamics, several layers, several
        subnetworks or a number of trials are asked for, and a search where those leave something open. "gaussian" is
        the paper's family: decay 0.9, threshold 1, Gaussian weights. "delayed" samples neurons that read 25 inputs each
        at random delays, with thresholds from the training data. A mapping is a family: arguments of
        :func:`cvxsnn.gaussian_witnesses` or, with a key ``"geometry"``, of :func:`cvxsnn.delayed_witnesses`, where
        ``hidden`` and ``n_subnetworks`` may be left out. A :class:`cvxsnn.WitnessSet` is used as it is.
    n_trials : int, optional
        Number of families that a search tries. By default half as many as there are sequences held out, but at
        least 64 and at most 192.
    max_tuning_seconds : float, optional
        Time after which a search takes the best family so far.
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
    penalty : "auto", "l1", "group", "elastic-net" or "group-elastic-net"
        The penalty of the read-out: a norm on every weight, or on the weights of a neuron together. The elastic nets
        add half the sum of squares, which lets the read-out be dense. "auto" is ridge regression, an elastic net
        without a norm, for mixed witnesses unless ``l1_strength`` is given, and "l1" else.
    l1_strength : float or "auto"
        Strength of the norm. "auto" follows the path of strengths and keeps the one that does best on held-out data,
        then solves again on all data. For the elastic nets it may be zero, which is ridge, and "auto" tries that too.
    l2_strength : float or "auto"
        Strength of the sum of squares, for the elastic nets. "auto" tries several, each with every ``l1_strength``;
        ridge regression of mixed witnesses takes the one with the least leave-one-out error. For other penalties, which
        have no squares, it is zero.
    sparsity : int, "few", "accuracy" or None
        How many of the hidden neurons ridge regression of mixed witnesses reads. An integer is the most that are read.
        "few" reads the fewest whose error is within one standard error of the best, where neurons and errors come from
        different samples. None and "accuracy" read all of them. The certificate is over the neurons that were chosen.
        Other penalties become sparse by ``l1_strength``.
    intercept : bool
        Whether the read-out has an unpenalised constant.
    layout : "channels-last" or "channels-first", optional
        How arrays are read: (n_samples, n_steps, n_features), the default, or (n_samples, n_channels, n_steps) as in
        aeon and sktime, where a channel is a feature; likewise each array of a list. Tables always have one row per
        step.
    standardize : bool
        Whether each feature is shifted and scaled to mean 0 and variance 1 over the training data; to a smaller
        variance if it hardly ever differs from one value. ``network_`` reads the result.
    validation_fraction : float
        Share of the data held out to choose the family, the strength, or the best epoch. Ridge regression of mixed
        witnesses holds nothing out for good: every sample is left out once, or for more than 5,000 samples a fifth.
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
    verbose : bool or "auto"
        Whether to show progress: True from the start, False never, and "auto" if ``fit`` takes more than three seconds.
        In a terminal, and in a notebook with ``ipywidgets``, it is a bar on standard error. Elsewhere it is lines of
        level INFO of the logger "cvxsnn".

    Attributes
    ----------
    network_ : SpikingNetwork
        The trained network.
    certificate_ : Certificate or None
        The certificate of the read-out; None if it was not found by convex optimisation: nothing is proven then.
    history_ : History
        One summary per stage of training; prints as a table. :meth:`summary` tells more.
    n_features_in_ : int
        Number of features per step.
    feature_names_in_ : array of str
        Names of the features, if ``X`` has tables whose columns have names.
"""
