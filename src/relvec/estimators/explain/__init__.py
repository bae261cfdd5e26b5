"""Explanations of relevance vector machines: the best model of every size, and shares of inputs in predictions."""
