"""What relevance vector machines and linear models share: the fit, and attributes from its record."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from relvec.estimators.assemble import inclusion
from relvec.estimators.base import BaseModel
from relvec.estimators.gaussian import GaussianSearch
from relvec.estimators.laplace import LaplaceSearch
from relvec.estimators.options import COLUMNS_OF_X, check_choices, machine_options, takes_columns
from relvec.estimators.pipeline import fit
from relvec.estimators.predictions.classes import ClassPredictions
from relvec.estimators.predictions.regression import RegressionPredictions
from relvec.estimators.records import FittedRVM
from relvec.estimators.sources import MemorySource
from relvec.estimators.sources.rows import ClassRows, RegressionRows
from relvec.estimators.sparse import fit_sparse_class_model, fit_sparse_model
from relvec.inference.likelihoods import Bernoulli, Categorical, Poisson

LIKELIHOODS = ("gaussian", "student-t", "poisson")


class Machine(BaseModel):
    """A relevance vector machine of any dictionary."""

    record_type = FittedRVM
    fitted_: FittedRVM

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        kernel = self._parameters().get("kernel")
        tags.input_tags.pairwise = isinstance(kernel, str) and kernel == "precomputed"
        return tags

    @property
    def _takes_sparse(self) -> bool:
        given = self._all_parameters()
        return takes_columns(given["kernel"], given["basis"])

    def _all_parameters(self) -> dict[str, Any]:
        """The parameters of the constructor; those that a linear model has not are those of columns of X."""
        return COLUMNS_OF_X | self._parameters()

    def _copy_machine(self, fitted: FittedRVM) -> None:
        """Set the attributes that regressors and classifiers have in common; drop those that this fit has not."""
        self._copy_common(fitted)
        self.basis_, self.atoms_ = fitted.basis, fitted.basis.labels()
        self.n_candidates_ = fitted.n_candidates
        on_rows = {
            "centres_": fitted.centres,
            "relevance_": fitted.relevance,
            "relevance_vectors_": fitted.relevance_vectors,
        }
        self._set_or_drop(dict.fromkeys(on_rows) if self._takes_sparse else on_rows)
        self._set_or_drop({"placement_": fitted.placement, "tuning_": fitted.tuning})

    def _describe_inputs(self, fitted: FittedRVM, per_function: Callable[[Any], Any]) -> bool:
        """Set what tells of the columns of X in a linear model, and drop it for others; whether the model is linear."""
        found = inclusion(fitted, self.n_features_in_)
        names = ("coef_std", "selected", "gain")
        self._set_or_drop({f"{n}_": None if found is None else per_function(getattr(found, n)) for n in names})
        return found is not None


class MachineRegressor(RegressionPredictions, RegressionRows, Machine):
    """A relevance vector machine of targets or counts."""

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> None:
        given = self._all_parameters()
        check_choices(given, likelihood=LIKELIHOODS)
        options = machine_options(given, classes=False, earlier=self._earlier)
        counts = given["likelihood"] == "poisson"
        if counts and (options.predictive is not None or options.noise_variance is not None):
            raise ValueError("counts have no noise variance and no augmented distribution: leave noise_variance at "
                             "None and predictive at 'rvm' with likelihood='poisson'")  # fmt: skip
        if options.predictive is not None and given["likelihood"] == "student-t":
            raise ValueError("Student-t noise has no augmented distribution, whose variances would be taken for noise: "
                             "leave predictive at 'rvm' with likelihood='student-t'")  # fmt: skip
        source = self._regression_source(options, X, y, sample_weight, groups, counts=counts)
        if options.learns_dictionary and isinstance(source, MemorySource) and source.has_squares:
            self._set_fitted(fit_sparse_model(options, source))
        else:
            self._set_fitted(fit(options, source, _search_for_counts(source) if counts else GaussianSearch.of))

    def _set_fitted(self, fitted: FittedRVM) -> None:
        """Set public attributes, in the units of X and y."""

        def per_output(values: Any) -> Any:
            return values[0] if fitted.single else values

        self._copy_machine(fitted)
        self.weights_, self.alpha_, self.gamma_ = map(per_output, (fitted.weights, fitted.alpha, fitted.gamma))
        self.intercept_ = per_output(fitted.intercept)
        self.log_marginal_likelihood_ = per_output(fitted.log_evidence)
        self.certificate_, self.n_iter_ = per_output(fitted.certificate), per_output(fitted.n_iter)
        self.status_, noise = per_output(fitted.status), fitted.noise
        optional = {
            "noise_variance_": None if np.isnan(fitted.noise_variance).all() else per_output(fitted.noise_variance),
            "history_": per_output(fitted.history) if any(map(len, fitted.history)) else None,
            "compression_": fitted.compression,
            "choice_": None if fitted.choices is None else per_output(fitted.choices),
            "coef_": None if fitted.coef is None else per_output(fitted.coef),
            "degrees_of_freedom_": None if noise is None else noise.degrees,
            "outliers_": None if noise is None else noise.outliers,
            "loss_nats_": None if fitted.loss_nats is None else per_output(fitted.loss_nats),
        }
        self._set_or_drop(optional)
        self._describe_inputs(fitted, per_output)

    @property
    def covariance_(self) -> np.ndarray:
        """Posterior covariance of the weights, see the class."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError("covariance_ exists after fit")
        found = self.fitted_.covariances
        return found[0] if self.fitted_.single else np.array(found)


class MachineClassifier(ClassPredictions, ClassRows, Machine):
    """A relevance vector machine of classes."""

    multi_class: str
    averaging: str
    share_alpha: bool

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> None:
        options = machine_options(self._all_parameters(), classes=True, earlier=self._earlier)
        source = self._class_source(options, X, y, sample_weight, groups)
        if options.learns_dictionary and isinstance(source, MemorySource) and source.has_squares:
            self._set_fitted(fit_sparse_class_model(options, source, self.averaging == "posterior"))
        else:
            self._set_fitted(fit(options, source, self._search()))

    def _search(self) -> Callable:
        """Return the function that makes the search for the model of the classes."""
        K, averaged = len(self.classes_), self.averaging == "posterior"
        if K > 2 and self.multi_class == "multinomial":
            share = bool(self.share_alpha)
            return partial(LaplaceSearch.of, likelihood=Categorical(K), share=share, averaged=averaged)
        labels = () if K == 2 else tuple(f"class {name!r} against the rest: " for name in self.classes_)
        return partial(LaplaceSearch.of, likelihood=Bernoulli(), labels=labels, averaged=averaged)

    def _set_fitted(self, fitted: FittedRVM) -> None:
        """Set public attributes, in the units of the basis functions as given."""
        single, joint = len(fitted.weights) == 1, len(fitted.functions) == 1

        def per_function(values: Any) -> Any:
            return values[0] if single else values

        def per_search(values: Any) -> Any:
            return (values[0].item() if isinstance(values, np.ndarray) else values[0]) if joint else values

        self._copy_machine(fitted)
        self.weights_, self.intercept_ = per_function(fitted.weights), per_function(fitted.intercept)
        self.alpha_, self.gamma_ = per_function(fitted.alpha), per_function(fitted.gamma)
        rows = fitted.basis.rows
        per_class = [rows[np.isfinite(alpha) & (rows >= 0)] for alpha in fitted.alpha]
        self._set_or_drop({"relevance_per_class_": None if self._takes_sparse else per_class})
        linear = self._describe_inputs(fitted, per_function)
        optional = {
            "coef_": per_function(fitted.coef) if linear else None,
            "choice_": None if fitted.choices is None else per_search(fitted.choices),
            "calibration_slope_": None if fitted.choices is None else fitted.choices[0].slope,
            "history_": per_search(fitted.history) if any(map(len, fitted.history)) else None,
        }
        self._set_or_drop(optional)
        self.log_marginal_likelihood_ = per_search(fitted.log_evidence)
        self.certificate_, self.n_iter_ = per_search(fitted.certificate), per_search(fitted.n_iter)
        self.status_ = per_search(fitted.status)

    @property
    def covariance_(self) -> np.ndarray:
        """Posterior covariance of the weights, see the class."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError("covariance_ exists after fit")
        found, m = self.fitted_.covariances, len(self.atoms_)
        if len(found) > 1:
            return np.stack(found)
        K = len(self.fitted_.weights)
        return found[0] if K == 1 else found[0].reshape(K, m, K, m)


def _search_for_counts(source: Any) -> Callable:
    labels = () if source.single else tuple(f"output {i}: " for i in range(source.n_targets))
    return partial(LaplaceSearch.of, likelihood=Poisson(), labels=labels)
