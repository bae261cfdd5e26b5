"""The classes that a model file may name, by public names that stay when modules move."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from relvec.export.model_file.layout import ModelFileError
from relvec.runtime.record import annotations_of

# Public prefix of a name in files: the modules where the classes of that prefix are defined today, and the classes.
RELVEC: dict[str, dict[str, tuple[str, ...]]] = {
    "relvec": {
        "relvec.estimators.gp": ("GPClassifier", "GPRegressor"),
        "relvec.estimators.linear": ("SparseBayesianClassifier", "SparseBayesianRegressor"),
        "relvec.estimators.rvm": ("RelevanceVectorClassifier", "RelevanceVectorRegressor"),
        "relvec.estimators.records": ("FittedProcess", "FittedRVM"),
        "relvec.estimators.sparse": ("ClassChoice", "SparseChoice"),
        "relvec.sparse.dictionary": ("LearnedWidths",),
        "relvec.sparse.distill": ("DistilledPredictor",),
        "relvec.inference.error_bars": ("ErrorBars", "Reach"),
        "relvec.estimators.noise": ("HeteroscedasticPredictor", "NoiseFit"),
        "relvec.inference.heteroscedastic": ("LogNoise",),
        "relvec.inference.hyperpriors": ("GammaPrior",),
    },
    "relvec.kernels": {
        "relvec.kernels": (
            "Cauchy", "FromCallable", "Gaussian", "Laplace", "Linear", "LinearSpline", "LogDistance", "Matern",
            "Polynomial", "Product", "Sum",
        ),
    },
    "relvec.basis": {
        "relvec.basis": (
            "Bias", "Concat", "EmptyBasis", "Functions", "KernelBasis", "Linear", "Polynomial", "Precomputed",
        ),
    },
    "relvec.solvers": {"relvec.solvers": ("EM", "MacKay", "Sequential")},
    "relvec.likelihoods": {"relvec.inference.likelihoods": ("Bernoulli", "Categorical", "Poisson")},
    "relvec.predictive": {
        "relvec.inference.predictive": (
            "Augmented", "AugmentedLatentPredictor", "AugmentedPredictor", "CalibratedPredictor", "CountPredictor",
            "LatentClasses", "LatentPredictor", "LinearPredictor", "RescaledPredictor", "StudentPredictor",
        ),
        "relvec.inference.conformal": ("ConformalScores",),
    },
    "relvec.gaussian_process": {
        "relvec.gaussian_process": (
            "Bounds", "Compared", "Component", "ProcessPredictor", "Merit", "Part", "Scale", "Structure", "Units",
        ),
        "relvec.gaussian_process.classes": (
            "Calibration", "ClassModel", "ClassProcess", "Entry", "LatentKernel", "Member", "Selection",
        ),
    },
    "relvec.design": {"relvec.design": ("Compression",)},
    "relvec.widths": {
        "relvec.hyperparameters.widths": ("Trial", "Tuning"),
        "relvec.hyperparameters.grvm_widths": ("WidthSearch", "WidthTrial"),
        "relvec.hyperparameters.interleaving": ("Interleaved", "Interleaving"),
    },
    "relvec.centres": {"relvec.hyperparameters.grvm": ("Placement",), "relvec.hyperparameters.centres": ("Move",)},
    "relvec.tables": {"relvec.app.tables.columns": ("Column", "TableColumns")},
}  # fmt: skip
# Classes of scikit-learn whose fitted state is numbers, words and lists of them.
SKLEARN = {
    "sklearn.pipeline": ("Pipeline", "FeatureUnion"),
    "sklearn.compose": ("ColumnTransformer", "TransformedTargetRegressor", "make_column_selector"),
    "sklearn.impute": ("SimpleImputer", "MissingIndicator"),
    "sklearn.preprocessing": (
        "Binarizer", "FunctionTransformer", "KBinsDiscretizer", "LabelBinarizer", "LabelEncoder", "MaxAbsScaler",
        "MinMaxScaler", "Normalizer", "OneHotEncoder", "OrdinalEncoder", "PolynomialFeatures", "PowerTransformer",
        "QuantileTransformer", "RobustScaler", "StandardScaler", "TargetEncoder",
    ),
    "sklearn.feature_selection": ("VarianceThreshold",),
    "sklearn.decomposition": ("PCA", "TruncatedSVD"),
}  # fmt: skip

PLAIN_TYPES = {t.__name__: t for t in (bool, int, float, str, object)}


@cache
def storable_classes() -> dict[str, type]:
    """Return every class that a file may name, by its public name."""
    found: dict[str, type] = {}
    for prefix, homes in RELVEC.items():
        for module, names in homes.items():
            found |= {f"{prefix}.{name}": getattr(import_module(module), name) for name in names}
    for module, names in SKLEARN.items():
        found |= {f"{module}.{name}": getattr(import_module(module), name) for name in names}
    for cls in found.values():
        annotations_of(cls)  # evaluated here, so that no file makes a load compile anything
    return found


@cache
def _names() -> dict[type, str]:
    return {cls: name for name, cls in storable_classes().items()}


def find_name(cls: type) -> str | None:
    """Return the public name of a class; None for a class that cannot be stored."""
    return _names().get(cls)


def find_class(name: str) -> type:
    """Return the class of a name in a file."""
    if name not in storable_classes():
        raise ModelFileError(f"it names {name!r}, which is no class of relvec, nor one of scikit-learn that is allowed")
    return storable_classes()[name]
