"""The part of the estimators' docstrings that they have in common."""

PARAMETERS = """
    Parameters
    ----------
    method : str
        How to train. "cvx" samples hidden neurons and finds the optimal read-out. "sg" trains all layers by surrogate
        gradients. "sg-cvx", "sg-sg" and "cvx-sg" have two stages. "r" and "r-cvx" are reservoirs.
    hidden : tuple of int, optional
        Widths of the hidden layers, instead of ``n_neurons``.
    n_neurons : int or "auto"
        Number of neurons of one hidden layer. For mixed witnesses "auto" is 8,192, or 16,384 if that promises a
        noticeably lower error and there are at most 5,000 samples. For a single family it is 4,096; for methods other
        than "cvx", and for neurons that read each other, 1,024.
    witnesses : "auto", "mixed", "search", "gaussian", "delayed", mapping, WitnessSet or Tuning
        The hidden neurons. "mixed" samples one layer from several families of neurons with delays, whose thresholds and
        weights come from the training data, and chooses the mixture by leave-one-out errors. "search" searches for one
        family; a :class:`cvxsnn.fitting.Tuning` says how. "auto" is "mixed" for the method "cvx" with one hidden layer,
        "search" for "cvx" with several, and for other methods Gaussian weights with decays between 0.5 and 1.
        "gaussian" is the paper's family: decay 0.9, threshold 1, Gaussian weights. "delayed" samples neurons that read
        25 inputs each at random delays, with thresholds from the training data. A mapping is a family: arguments of
        :func:`cvxsnn.gaussian_witnesses` such as ``decay``, ``threshold``, ``bias``, ``gain``, ``neuron`` and
        ``n_subnetworks``, or, with a key ``"geometry"``, of :func:`cvxsnn.delayed_witnesses`. ``hidden`` may be left
        out. A :class:`cvxsnn.WitnessSet` is used as it is.
    readout : "mean", "last" or "windows-k", optional
        Read the mean of the spikes over the steps, the spikes of the last step, or the means in k windows of time. By
        default the mean; mixed witnesses and a search may find that the last step has a lower error.
    loss : str, optional
        The loss. {loss}
    penalty : "auto", "l1", "group", "elastic-net" or "group-elastic-net"
        The penalty of the read-out: a norm of every weight, or of the weights of a neuron together. The elastic nets
        add half the sum of squares. "auto" is ridge regression, an elastic net without a norm, for mixed witnesses
        unless ``l1_strength`` is given, and "l1" otherwise.
    l1_strength : float or "auto"
        Strength of the norm. "auto" chooses it on samples left out. For the elastic nets it may be zero, which is
        ridge, and "auto" includes that.
    l2_strength : float or "auto"
        Strength of the sum of squares, for the elastic nets. "auto" chooses it on samples left out. For other
        penalties it is zero.
    sparsity : int, "few", "accuracy" or None
        How many of the hidden neurons are read, for methods that end with a convex read-out. An integer is the most.
        "few" reads the fewest whose error is within one standard error of the best, where neurons and errors come from
        different samples. None and "accuracy" read all of them. The certificate covers the neurons selected.
    intercept : bool
        Whether the read-out has an unpenalised constant.
    layout : "channels-last" or "channels-first", optional
        How arrays are read: (n_samples, n_steps, n_features), the default, or (n_samples, n_channels, n_steps) as in
        aeon and sktime, where a channel is a feature; likewise each array of a list. Tables always have one row per
        step.
    standardize : bool
        Whether each feature is shifted and scaled to mean 0 and variance 1 over the training data; to a smaller
        variance if it hardly ever differs from one value. ``network_`` reads the result.
    tol : float
        Relative gap to certify.
    max_seconds : float, optional
        Time for a fit. Nothing is begun that is likely to end later, and the best choice so far is solved and
        certified; :meth:`summary` says so. Always done are a first comparison of 2,048 neurons on at most 1,000
        samples, the first family of a search or the first epoch of a gradient stage, and the final solve; with
        ``n_neurons`` or ``sparsity``, what they ask for.
    surrogate : SurrogateSettings, optional
        Settings of gradient stages.{class_weight}
    device : str
        Where to compute, such as "cpu" or "cuda"; "auto" is the GPU if there is one.
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
