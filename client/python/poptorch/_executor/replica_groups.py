"""Parameters that have a value for each group of replicas: `parameter.replicaGrouping(…)`.

Such a parameter has the number of groups as its first dimension, and forward sees the row of the
replica's group. Gradients are summed up over the replicas of a group, and a mean divides by all
replicas.
"""

import math
import types
import weakref
from typing import Any, Dict, NamedTuple, Tuple

from torch import nn

from .. import _errors, enums
from .._capture.tape import Tape
from .._options.groups import check_count, check_is

_GROUPING, _EXECUTOR = "_poptorch_grouping", "_poptorch_executor_of_grouping"


class _Grouping(NamedTuple):
    """The arguments of replicaGrouping."""

    comm_group_type: enums.CommGroupType
    shards: int
    variable_retrieval_mode: enums.VariableRetrievalMode

    def groups(self, name: str, replicas: int) -> int:
        """The number of groups."""
        if self.comm_group_type == enums.CommGroupType.All:
            return 1
        if self.comm_group_type == enums.CommGroupType.NoGrouping:
            return replicas
        if replicas % self.shards:
            raise _errors.py_error(_errors.GROUPING_SIZE % (name, self.shards, replicas))
        return replicas // self.shards


def replica_grouping(
    parameter: nn.Parameter,
    comm_group_type: enums.CommGroupType,
    shards: int,
    variable_retrieval_mode: enums.VariableRetrievalMode,
) -> None:
    """Gives each group of replicas a value of its own of a parameter.

    It is to be called of a parameter of a wrapped model, before the model is compiled. The first
    dimension of the parameter is the number of groups.

    Args:
        comm_group_type: which replicas form a group: those of `CommGroupType`. All leaves the
            parameter as others are, and with NoGrouping each replica is a group.
        shards: the number of replicas of a group, for Consecutive and Orthogonal.
        variable_retrieval_mode: whose values are read back. Replicas of a group have the same;
            AllReplicas needs groups of one replica.

    Raises:
        AssertionError, ValueError: an argument has another type, or is too small.
        poptorch.Error: the model is compiled.
    """
    check_is("comm_group_type", comm_group_type, enums.CommGroupType, "a CommGroupType")
    check_is("shards", shards, int, "an integer")
    if comm_group_type in (enums.CommGroupType.Consecutive, enums.CommGroupType.Orthogonal):
        check_count("shards", shards)
    mode, modes = variable_retrieval_mode, enums.VariableRetrievalMode
    check_is("variable_retrieval_mode", mode, modes, "a VariableRetrievalMode")
    executor = parameter.__dict__.get(_EXECUTOR, bool)()
    if executor and executor.isCompiled():
        raise _errors.py_error(_errors.GROUPING_LATE)
    parameter.__dict__[_GROUPING] = _Grouping(comm_group_type, shards, mode)


def offer(module: Any) -> None:
    """Gives the parameters of a module the method `replicaGrouping`, unless they have it."""
    for parameter in module.parameters() if isinstance(module, nn.Module) else ():
        if not hasattr(parameter, "replicaGrouping"):
            method = types.MethodType(replica_grouping, weakref.proxy(parameter))
            parameter.__dict__["replicaGrouping"] = method


def groupings(executor: Any, module: Any, options: Any, norms: str) -> Dict[int, Tuple[int, bool]]:
    """The parameters with a value for each group, by identity: (groups, whether orthogonal).

    Args:
        executor: which is about to compile the module.
        module: whose parameters these are.
        options: poptorch.Options.
        norms: what of the optimiser takes norms over whole parameters; "" if nothing does.

    Raises:
        poptorch.Error: the replicas do not form these groups, a parameter has another number of
            rows, or the optimiser needs norms.
    """
    found = {}
    replicas = options.replication_factor
    for name, parameter in module.named_parameters() if isinstance(module, nn.Module) else ():
        grouping = parameter.__dict__.get(_GROUPING)
        parameter.__dict__[_EXECUTOR] = weakref.ref(executor)
        groups = grouping.groups(name, replicas) if grouping else 1
        if groups == 1:
            continue
        if parameter.dim() == 0:
            raise _errors.cpp_error(_errors.GROUPING_SCALAR % name)
        if parameter.shape[0] != groups:
            raise _errors.py_error(_errors.GROUPING_ROWS % (name, parameter.shape[0], groups))
        modes = enums.VariableRetrievalMode
        if grouping.variable_retrieval_mode == modes.AllReplicas and groups != replicas:
            raise _errors.py_error(_errors.GROUPING_RETRIEVAL % (name, groups, replicas))
        if norms:
            raise _errors.py_error(_errors.GROUPING_NORMS % (name, norms))
        orthogonal = grouping.comm_group_type == enums.CommGroupType.Orthogonal
        found[id(parameter)] = groups, orthogonal
    return found


def restore(tape: Tape, parameters: Dict[str, Any], replicas: int) -> None:
    """Groups the parameters of a model from a file as they were when it was compiled.

    Args:
        tape: what was compiled.
        parameters: by name.
        replicas: of the model.
    """
    types_of = {True: enums.CommGroupType.Orthogonal, False: enums.CommGroupType.Consecutive}
    mode = enums.VariableRetrievalMode.OnePerGroup
    for number, groups, orthogonal in tape.groupings:
        grouping = _Grouping(types_of[orthogonal], replicas // groups, mode)
        parameters[tape.parameters[number][0]].__dict__[_GROUPING] = grouping


def norms_of(values: Any) -> str:
    """What of an optimiser takes norms over whole parameters, for `groupings`.

    Args:
        values: OptimizerValues.
    """
    if values.kind.name == "lamb":
        return "LAMB"
    return "" if math.isinf(values.settings.get("max_grad_norm", math.inf)) else "max_grad_norm"
