"""LAMB and LARS, which PyTorch does not have, by their definitions in program.proto."""

import torch


class Layerwise(torch.optim.Optimizer):
    """Scales the step of each parameter to the norm of its weights."""

    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                state["step"] = state.get("step", 0) + 1
                with torch.no_grad():
                    parameter -= self.change(parameter, parameter.grad, state, group)

    @staticmethod
    def ratio(weights, step):
        return weights / step if weights > 0 and step > 0 else 1.0


class Lamb(Layerwise):
    def __init__(self, parameters, lr=0.001, betas=(0.9, 0.999), eps=1e-6, weight_decay=0):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def change(self, w, g, state, options):
        beta1, beta2 = options["betas"]
        state["m"] = beta1 * state.get("m", torch.zeros_like(w)) + (1 - beta1) * g
        state["v"] = beta2 * state.get("v", torch.zeros_like(w)) + (1 - beta2) * g * g
        m, v = state["m"] / (1 - beta1 ** state["step"]), state["v"] / (1 - beta2 ** state["step"])
        u = m / (v.sqrt() + options["eps"]) + options["weight_decay"] * w
        return options["lr"] * self.ratio(w.norm(), u.norm()) * u


class Lars(Layerwise):
    def __init__(self, parameters, lr=0.1, momentum=0.9, weight_decay=0, trust=0.001, eps=1e-8):
        super().__init__(
            parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust, "eps": eps}
        )

    def change(self, w, g, state, options):
        weights, gradient, decay = w.norm(), g.norm(), options["weight_decay"]
        step = gradient + decay * weights + options["eps"] if gradient > 0 else 0
        u = self.ratio(options["trust"] * weights, step) * (g + decay * w)
        state["v"] = options["momentum"] * state.get("v", torch.zeros_like(w)) + u
        return options["lr"] * state["v"]
