"""Draw the pictures of the pages on regression and print their numbers: python docs/make_images_regression.py."""

from pathlib import Path

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from relvec import RVR
from relvec.plot import LINE, POINT, TRUTH, VECTOR, new_figure, plot_fit

IMAGES = Path(__file__).parent / "images"
DASHES = (0, (4, 3))


def sinc(X):
    return np.sinc(X[:, 0] / np.pi)


def sinc_data():
    X = np.linspace(-10, 10, 100)[:, None]
    return X, sinc(X) + np.random.default_rng(0).normal(0, 0.1, 100)


def plain(ax, title="", **labels):
    ax.spines[["top", "right"]].set_visible(False)
    ax.set(**labels)
    ax.set_title(title, fontsize="medium", loc="left")


def draw_fit():
    """The sinc of the five-line start, with the band of a new target and the narrower one of the function."""
    X, y = sinc_data()
    model = RVR(kernel="gaussian", width=3.0).fit(X, y)
    figure = new_figure(7.2, 3.8)
    ax = plot_fit(model, X, y, figure.subplots(), truth=sinc)
    grid = np.linspace(-10, 10, 500)[:, None]
    mean, std = model.predict(grid, return_std=True, noise=False)
    low, high = mean - 2 * std, mean + 2 * std
    ax.fill_between(grid[:, 0], low, high, color=LINE, alpha=0.35, lw=0, label="the same without noise")
    ax.legend(frameon=False, fontsize="small", loc="upper right")
    return figure, f"{len(model.relevance_)} vectors, noise {model.noise_variance_**0.5:.3f}"


def draw_away():
    """Error bars of a relevance vector machine and of a Gaussian process, in a gap and beyond the data."""
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.uniform(-8, -2, 25), rng.uniform(2, 6, 20)])[:, None]
    y = np.sin(X[:, 0]) + rng.normal(0, 0.15, len(X))
    rvm = RVR(kernel="gaussian", width=1.5).fit(X, y)
    prior = ConstantKernel() * RBF(1.5 / np.sqrt(2), "fixed") + WhiteKernel(0.1)
    gp = GaussianProcessRegressor(prior, n_restarts_optimizer=3, random_state=0).fit(X, y)
    grid = np.linspace(-13, 13, 600)[:, None]
    figure = new_figure(9.2, 3.4)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for ax, model, title in zip(panels, (rvm, gp), ("relevance vector machine", "Gaussian process"), strict=True):
        mean, std = model.predict(grid, return_std=True)
        x = grid[:, 0]
        ax.fill_between(x, mean - 2 * std, mean + 2 * std, color=LINE, alpha=0.16, lw=0, label="±2 std of a new target")
        ax.plot(x, np.sin(x), color=TRUTH, lw=1.1, ls=DASHES, label="true function")
        ax.plot(X[:, 0], y, ".", color=POINT, ms=6, label="data")
        ax.plot(x, mean, color=LINE, lw=2, label="mean")
        plain(ax, title, xlabel="x", xlim=(-13, 13), ylim=(-2.2, 2.2))
    rows = rvm.relevance_
    panels[0].plot(X[rows, 0], y[rows], "o", ms=10, mfc="none", mec=VECTOR, mew=1.6, label="relevance vectors")
    panels[0].set_ylabel("y")
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=5, frameon=False, fontsize="small")
    far, noise = rvm.predict([[50.0]], return_std=True)[1][0], rvm.noise_variance_**0.5
    return figure, f"RVM: std far from the data {far:.3f}, noise {noise:.3f}, bias kept: {'bias' in rvm.atoms_}"


def draw_history():
    """The evidence and the number of functions in the model, step by step."""
    steps = RVR(kernel="gaussian", width=3.0).fit(*sinc_data()).history_[1:]
    number = np.arange(1, len(steps) + 1)
    figure = new_figure(7.2, 4.4)
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(number, steps["objective"], color=POINT, lw=1)
    below.step(number, steps["size"], where="post", color=POINT, lw=1)
    colours = {"add": LINE, "reestimate": TRUTH, "exchange": "#3a7d44", "restart": VECTOR}
    for action, colour in colours.items():
        at = steps["action"] == action
        if at.any():
            above.plot(number[at], steps["objective"][at], "o", ms=4.5, color=colour, label=action)
            below.plot(number[at], steps["size"][at], "o", ms=4.5, color=colour)
    plain(above, "log evidence (nats)")
    plain(below, "functions in the model", xlabel="step", ylim=(0, None))
    above.legend(frameon=False, fontsize="small", ncols=4, loc="lower right")
    return figure, f"{len(steps)} steps, largest size {steps['size'].max()}, final size {steps['size'][-1]}"


def plane(X):
    return sinc(X) + 0.1 * X[:, 1]


def draw_basis():
    """sinc(x0) + 0.1 x1, T01 section 4.3, from kernels alone and with the inputs among the basis functions."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-10, 10, (100, 2))
    y = plane(X) + rng.normal(0, 0.1, 100)
    line = np.linspace(-10, 10, 101)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    models = {
        "kernels alone, width 3": RVR(width=3.0).fit(X, y),
        "with the inputs": RVR(width=3.0, basis="linear").fit(X, y),
        "and a width per input": RVR(width=[3.0, 60.0], basis="linear").fit(X, y),
    }
    figure = new_figure(11, 3.3)
    panels = figure.subplots(1, 4, sharex=True, sharey=True)
    style = {"levels": np.linspace(-1.5, 2.1, 19), "cmap": "viridis", "extend": "both"}
    panels[0].contourf(line, line, plane(grid).reshape(101, 101), **style)
    panels[0].plot(*X.T, ".", ms=4, color="white")
    plain(panels[0], "sinc(x0) + 0.1 x1\nand the data", xlabel="x0", ylabel="x1")
    printed = []
    for ax, (title, model) in zip(panels[1:], models.items(), strict=True):
        drawn = ax.contourf(line, line, model.predict(grid).reshape(101, 101), **style)
        ax.plot(*X[model.relevance_].T, "o", ms=7, mfc="none", mec=VECTOR, mew=1.4, clip_on=False)
        error = np.sqrt(np.mean((model.predict(grid) - plane(grid)) ** 2))
        plain(ax, f"{title}\n{len(model.weights_)} functions, RMS error {error:.3f}", xlabel="x0")
        extra = dict(zip(model.atoms_, model.weights_.round(3).tolist(), strict=True)).get("x1", "not in the model")
        evidence = model.log_marginal_likelihood_
        printed.append(f"{title}: {len(model.weights_)} functions, evidence {evidence:.1f}, weight of x1 {extra}")
    figure.colorbar(drawn, ax=panels, shrink=0.9, ticks=[-1, 0, 1, 2])
    return figure, "\n  ".join(printed)


def draw_width(draws=10):
    """Three fits of one draw; evidence, vectors and error against the width, means over several draws."""
    X, test = np.linspace(-10, 10, 100)[:, None], np.linspace(-10, 10, 1000)[:, None]
    widths, shown = np.geomspace(0.3, 6, 9).round(2), (0.3, 3.0, 6.0)
    found = np.empty((draws, len(widths), 3))
    for i in range(draws):
        y = sinc(X) + np.random.default_rng(i).normal(0, 0.1, 100)
        for j, width in enumerate(widths):
            model = RVR(width=width, tol=1e-2).fit(X, y)
            error = np.sqrt(np.mean((model.predict(test) - sinc(test)) ** 2))
            found[i, j] = model.log_marginal_likelihood_, len(model.relevance_), error
    figure = new_figure(9.2, 4.8)
    above, below = figure.subplots(2, 3)
    X, y = sinc_data()
    for ax, width in zip(above, shown, strict=True):
        model = RVR(width=width, tol=1e-2).fit(X, y)
        ax.plot(X[:, 0], y, ".", color=POINT, ms=3)
        ax.plot(test[:, 0], sinc(test), color=TRUTH, lw=1, ls=DASHES)
        ax.plot(test[:, 0], model.predict(test), color=LINE, lw=1.8)
        ax.plot(X[model.relevance_, 0], y[model.relevance_], "o", ms=7, mfc="none", mec=VECTOR, mew=1.2)
        plain(ax, f"width {width:g}: {len(model.relevance_)} vectors", ylim=(-0.6, 1.35))
    titles = ("log evidence", "relevance vectors", "RMS error of the mean")
    for ax, title, mean in zip(below, titles, found.mean(axis=0).T, strict=True):
        ax.plot(widths, mean, "o-", color=LINE, ms=4)
        plain(ax, title, xlabel="width", xscale="log")
        ax.set_xticks([0.3, 1, 3, 6], ["0.3", "1", "3", "6"])
        ax.minorticks_off()
    below[2].set_ylim(0, None)
    return figure, "\n  ".join(
        f"width {w:4g}: evidence {e:7.2f}, {m:4.1f} vectors, error {r:.4f} (means of {draws} draws)"
        for w, (e, m, r) in zip(widths, found.mean(axis=0), strict=True)
    )


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for draw in (draw_fit, draw_away, draw_history, draw_basis, draw_width):
        figure, printed = draw()
        name = f"regression_{draw.__name__.removeprefix('draw_')}.png"
        figure.savefig(IMAGES / name, dpi=100)
        print(f"{name} ({(IMAGES / name).stat().st_size // 1000} kB)\n  {printed}")
