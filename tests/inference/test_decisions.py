import numpy as np
import pytest

from relvec.inference.decisions import bayes_decision, change_priors, expected_cost, reject

P = np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8]])


def test_zero_one_costs_give_the_most_probable_class():
    np.testing.assert_array_equal(bayes_decision(P, 1.0 - np.eye(2)), P.argmax(axis=1))


def test_unequal_costs_move_the_threshold():
    cost = np.array([[0.0, 1.0], [9.0, 0.0]])  # missing class 1 costs nine times a false alarm: threshold 0.1
    proba = np.array([[0.89, 0.11], [0.91, 0.09]])
    np.testing.assert_array_equal(bayes_decision(proba, cost), [1, 0])
    np.testing.assert_allclose(expected_cost(proba, cost)[0], [0.99, 0.89])


def test_reject_is_the_bayes_decision_with_a_third_action():
    cost = np.column_stack([1.0 - np.eye(2), np.full(2, 0.25)])
    action = bayes_decision(P, cost)
    np.testing.assert_array_equal(np.where(action == 2, -1, action), reject(P, cost=0.25))


def test_changed_priors_agree_with_bayes_rule():
    x = np.linspace(-3, 3, 7)
    density = np.column_stack([np.exp(-0.5 * (x - 1) ** 2), np.exp(-0.5 * (x + 1) ** 2)])

    def posterior(prior):
        joint = density * prior
        return joint / joint.sum(axis=1, keepdims=True)

    old, new = np.array([0.5, 0.5]), np.array([0.99, 0.01])
    np.testing.assert_allclose(change_priors(posterior(old), old, new), posterior(new))


@pytest.mark.parametrize(
    "call",
    [
        lambda: bayes_decision(P, np.eye(3)),
        lambda: bayes_decision(2 * P, np.eye(2)),
        lambda: reject(P),
        lambda: reject(P, 1.5),
        lambda: reject(P, 0.5, cost=0.5),
        lambda: change_priors(P, [0.0, 1.0], [0.5, 0.5]),
        lambda: change_priors(P, [0.5, 0.5], [0.5, 0.5, 0.0]),
    ],
)
def test_wrong_input_is_refused(call):
    with pytest.raises(ValueError, match=r"must|give"):
        call()
