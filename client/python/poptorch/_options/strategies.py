"""Execution strategies: how the blocks of a model become stages, phases and places on IPUs."""

from typing import Dict, List, Optional, Sequence, Union

from .. import _errors, enums
from .._block_state import EnteredBlock, Placement
from .._blocks import BlockId


def _is_ids(values) -> bool:
    return bool(values) and all(isinstance(value, str) for value in values)


class Stage:
    """One or several blocks that run on one IPU.

    >>> poptorch.Stage("encoder", "head").ipu(1)
    """

    def __init__(self, *block_ids: BlockId) -> None:
        """
        Args:
            block_ids: the ids of the blocks, each of which may be in one stage only.
        """
        assert _is_ids(block_ids), _errors.BLOCK_IDS % (list(block_ids),)
        self._blocks = list(block_ids)
        self._ipu: Optional[int] = None
        self._stage_id = -1
        self._phase_id = -1

    @property
    def blocks(self) -> List[BlockId]:
        """The ids of the blocks."""
        return self._blocks

    def ipu(self, ipu: int) -> "Stage":
        """Puts the stage on an IPU, whatever IPU its blocks ask for."""
        assert isinstance(ipu, int) and ipu >= 0, _errors.OUT_OF_RANGE % (
            "The IPU of a stage",
            ipu,
            "an integer from 0 on",
        )
        self._ipu = ipu
        return self

    def _place(self, stage_id: int, phase_id: int = -1) -> "Stage":
        self._stage_id = stage_id
        self._phase_id = phase_id
        return self

    def __repr__(self) -> str:
        ipu = "" if self._ipu is None else f", ipu={self._ipu}"
        return f"Stage({', '.join(map(repr, self._blocks))}{ipu})"


class Phase:
    """Stages that run at once in ParallelPhasedExecution or SerialPhasedExecution.

    >>> poptorch.Phase(poptorch.Stage("A").ipu(0), poptorch.Stage("B").ipu(1))
    """

    def __init__(self, *arg: Union[BlockId, Stage]) -> None:
        """
        Args:
            arg: the stages, or ids of blocks, which make one stage.
        """
        if arg and all(isinstance(each, Stage) for each in arg):
            self.stages = list(arg)
        else:
            assert _is_ids(arg), _errors.PHASE_MIXED % (list(arg),)
            self.stages = [Stage(*arg)]

    def stage(self, idx: int) -> Stage:
        """A stage by its index in the phase."""
        return self.stages[idx]

    def ipus(self, *ipus: int) -> "Phase":
        """Puts each stage on an IPU, in the order of the stages."""
        counts = (len(self.stages), len(ipus))
        assert counts[0] == counts[1], _errors.PHASE_IPUS % counts
        for stage, ipu in zip(self.stages, ipus):
            stage.ipu(ipu)
        return self

    def __repr__(self) -> str:
        return f"Phase({', '.join(map(repr, self.stages))})"


class _ExecutionStrategy:
    """The base of the strategies: a table from the id of a block to its stage."""

    def __init__(self, stages: Dict[BlockId, Stage], auto: Optional[enums.AutoStage]) -> None:
        self._stages = stages
        self._auto = auto
        self._auto_stages: Dict[BlockId, Stage] = {}

    def stage(self, block_id: BlockId) -> Stage:
        """The stage of a block, so that it can be put on an IPU.

        Raises:
            AssertionError: the strategy does not name the block.
        """
        assert block_id in self._stages, _errors.UNKNOWN_BLOCK % (block_id, list(self._stages))
        return self._stages[block_id]

    def onStartTracing(self) -> None:
        """Forgets the stages that were made for the blocks of an earlier capture."""
        self._auto_stages = {}

    def onEndTracing(self) -> None:
        """Is called when a model has been captured, also if that failed."""
        self._auto_stages = {}

    def backendOptions(self) -> Dict[str, Union[int, bool]]:
        """The options that the strategy stands for, by their internal names."""
        raise NotImplementedError

    def placement(self, block_id: BlockId, ipu_id: Optional[int]) -> Placement:
        """Where a block runs: on the stage's IPU, the block's, or that of its stage's number.

        Args:
            block_id: the id of the block.
            ipu_id: the IPU that the block asks for.
        Raises:
            AssertionError: no stage can be found for it.
        """
        stage = self.stage(block_id) if self._auto is None else self._auto_stage(block_id, ipu_id)
        ipu = stage._ipu if stage._ipu is not None else ipu_id
        ipu = stage._stage_id if ipu is None else ipu
        return Placement(stage._stage_id, ipu, stage._phase_id)

    def check_order(self, before: EnteredBlock, block: EnteredBlock) -> None:
        """Raises Error if a block may not follow another one in the program."""

    def _auto_stage(self, block_id: BlockId, ipu_id: Optional[int]) -> Stage:
        """The stage of a block, which stays what it was when the block was entered first."""
        if block_id not in self._auto_stages:
            stage = Stage(block_id)
            if self._auto == enums.AutoStage.SameAsIpu:
                assert ipu_id is not None, _errors.NO_IPU_FOR_BLOCK % block_id
                stage.ipu(ipu_id)._place(ipu_id)
            else:
                stage._place(len(self._auto_stages) + 1)
            self._auto_stages[block_id] = stage
        return self._auto_stages[block_id]

    def __repr__(self) -> str:
        arguments = map(repr, self._arguments()) if self._auto is None else [str(self._auto)]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def _arguments(self) -> Sequence[object]:
        return list({id(stage): stage for stage in self._stages.values()}.values())


def _table(stages: Sequence[Stage]) -> Dict[BlockId, Stage]:
    table: Dict[BlockId, Stage] = {}
    for stage in stages:
        for block in stage.blocks:
            assert block not in table, _errors.BLOCK_TWICE % block
            table[block] = stage
    return table


def _order_error(before: EnteredBlock, block: EnteredBlock, field: str) -> Exception:
    numbers = (getattr(block.placement, field), getattr(before.placement, field))
    return _errors.cpp_error(
        _errors.STAGES_DESCEND % (block.id, field, numbers[0], before.id, numbers[1])
    )


class PipelinedExecution(_ExecutionStrategy):
    """Stages work on different micro-batches at once. It is the default.

    >>> poptorch.PipelinedExecution(poptorch.Stage("A").ipu(0), poptorch.Stage("B", "C").ipu(1))
    >>> poptorch.PipelinedExecution("A", ["B", "C"])
    >>> poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement)

    Training needs gradient accumulation of at least 2F − 1, inference device iterations of at
    least F, where F is the number of forward stages.
    """

    def __init__(self, *args: Union[enums.AutoStage, Stage, BlockId, List[BlockId]]) -> None:
        """
        Args:
            args: the stages in the order of execution, each as a Stage, the id of its block or a
                list of ids; or one AutoStage. Without any it is AutoStage.SameAsIpu.
        """
        if not args or (len(args) == 1 and isinstance(args[0], enums.AutoStage)):
            super().__init__({}, args[0] if args else enums.AutoStage.SameAsIpu)
            return
        stages = []
        for number, arg in enumerate(args):
            if not isinstance(arg, Stage):
                ids = [arg] if isinstance(arg, str) else arg
                fits = isinstance(ids, (list, tuple)) and _is_ids(ids)
                assert fits, _errors.STAGE_ARGUMENTS % (type(self).__name__, arg)
                arg = Stage(*ids)
            stages.append(arg._place(number))
        super().__init__(_table(stages), None)

    def backendOptions(self) -> Dict[str, Union[int, bool]]:
        return {"execution_mode": 0}

    def check_order(self, before: EnteredBlock, block: EnteredBlock) -> None:
        if block.placement.stage < before.placement.stage:
            raise _order_error(before, block, "stage")


class ShardedExecution(PipelinedExecution):
    """Stages run one after the other, one IPU at a time, with the arguments of PipelinedExecution.

    It needs no minimum of gradient accumulation or device iterations.
    """

    def backendOptions(self) -> Dict[str, Union[int, bool]]:
        return {"execution_mode": 1}

    def check_order(self, before: EnteredBlock, block: EnteredBlock) -> None:
        """Stages may go back to an earlier IPU."""


class _PhasedExecution(_ExecutionStrategy):
    """The base of strategies whose phases run one after the other."""

    _serial = True

    def __init__(
        self, *phases: Union[Phase, Stage, BlockId, List[Stage], List[BlockId]]
    ) -> None:
        """
        Args:
            phases: the phases in the order of execution, each as a Phase, a list of its Stages,
                one Stage, the id of its block or a list of ids.
        """
        assert phases, _errors.NO_PHASES
        self._phases = [self._phase_of(arg) for arg in phases]
        for number, phase in enumerate(self._phases):
            for index, stage in enumerate(phase.stages):
                stage._place(index, number)
        self._tensors_liveness = enums.Liveness.AlwaysLive
        self._separate_backward_phase = False
        super().__init__(_table([stage for phase in self._phases for stage in phase.stages]), None)

    def _phase_of(self, arg) -> Phase:
        if isinstance(arg, Phase):
            return arg
        parts = [arg] if isinstance(arg, (str, Stage)) else arg
        assert isinstance(parts, (list, tuple)), _errors.PHASE_ARGUMENTS % (
            type(self).__name__,
            arg,
        )
        return Phase(*parts)

    def phase(self, phase: int) -> Phase:
        """A phase by its index, so that its stages can be put on IPUs."""
        count = len(self._phases)
        fits = isinstance(phase, int) and 0 <= phase < count
        assert fits, _errors.PHASE_INDEX % (phase, count - 1)
        return self._phases[phase]

    def useSeparateBackwardPhase(self, use: bool = True) -> "_PhasedExecution":
        """Whether the last phase's backward pass is a phase of its own. Accepted without effect."""
        assert isinstance(use, bool), _errors.WRONG_TYPE % ("use", use, "True or False")
        self._separate_backward_phase = use
        return self

    def backendOptions(self) -> Dict[str, Union[int, bool]]:
        return {
            "execution_mode": 2,
            "serial_phases_execution": self._serial,
            "separate_backward_phase": self._separate_backward_phase,
            "tensors_liveness": int(self._tensors_liveness),
        }

    def check_order(self, before: EnteredBlock, block: EnteredBlock) -> None:
        if block.placement.phase < before.placement.phase:
            raise _order_error(before, block, "phase")

    def _arguments(self) -> Sequence[object]:
        return self._phases


class ParallelPhasedExecution(_PhasedExecution):
    """Phases alternate between two groups of IPUs: even phases run on the even ones.

    >>> strategy = poptorch.ParallelPhasedExecution(
    ...     poptorch.Phase(poptorch.Stage("A"), poptorch.Stage("A2")),
    ...     poptorch.Phase(poptorch.Stage("B"), poptorch.Stage("B2")))
    >>> strategy.phase(0).ipus(0, 2)
    >>> strategy.phase(1).ipus(1, 3)
    """

    _serial = False

    def sendTensorsOffChipAfterFwd(self, off_chip: bool = True) -> "ParallelPhasedExecution":
        """Whether tensors wait for the backward pass in streaming memory.

        Accepted without effect: TensorLocations.setActivationLocation says it.
        """
        assert isinstance(off_chip, bool), _errors.WRONG_TYPE % (
            "off_chip",
            off_chip,
            "True or False",
        )
        live = enums.Liveness.AlwaysLive
        self._tensors_liveness = enums.Liveness.OffChipAfterFwd if off_chip else live
        return self


class SerialPhasedExecution(_PhasedExecution):
    """Phases run one after the other on one group of IPUs.

    >>> strategy = poptorch.SerialPhasedExecution("A", "B", "C")
    >>> strategy.setTensorsLiveness(poptorch.Liveness.OffChipAfterFwd)
    """

    def setTensorsLiveness(self, liveness: enums.Liveness) -> "SerialPhasedExecution":
        """When tensors leave the IPU for streaming memory.

        Accepted without effect: TensorLocations.setActivationLocation says it.
        """
        assert isinstance(liveness, enums.Liveness), _errors.WRONG_TYPE % (
            "liveness",
            liveness,
            "a poptorch.Liveness",
        )
        self._tensors_liveness = liveness
        return self
