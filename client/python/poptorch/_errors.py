"""Exceptions of PopTorch, and the texts of all errors that its Python files raise.

The classes are here, so that the package can be imported without its extension; the extension
raises these very classes.
"""

from typing import Optional

# --- Classes.


class Error(Exception):
    """Something went wrong while a model was captured, compiled or run.

    Attributes:
        message: what went wrong, without the place.
        type: the kind of error, such as "poptorch_py_error" or "poptorch_cpp_error".
        location: the steps that were under way, the innermost one first, a line each.
    """

    message: str = ""
    type: str = ""
    location: str = ""

    def __init__(
        self,
        text: str = "",
        *,
        message: Optional[str] = None,
        type: str = "",  # pylint: disable=redefined-builtin
        location: str = "",
    ) -> None:
        super().__init__(text)
        self.message = text if message is None else message
        self.type = type
        self.location = location

    def __reduce__(self):
        if globals().get(type(self).__name__) is type(self):
            return _restored, (type(self).__name__, self.args, self.__dict__)
        return super().__reduce__()


class RecoverableError(Error):
    """An error of the system after which the program can go on, once the IPUs are reset.

    Attributes:
        recovery_action: "IPU_RESET", "PARTITION_RESET" (also its IPU-Links) or "FULL_RESET"
            (power cycle).
    """

    recovery_action: str = ""

    def __init__(self, text: str = "", *, recovery_action: str = "", **fields: str) -> None:
        super().__init__(text, **fields)
        self.recovery_action = recovery_action


class UnrecoverableError(Error):
    """An error of the system after which no reset helps."""


# Programs know the classes by the module that raises them.
for _class in (Error, RecoverableError, UnrecoverableError):
    _class.__module__ = "poptorch.poptorch_core"


def _restored(name, args, fields):
    """The unpickled error of a class of this file, which needs no extension."""
    error = globals()[name](*args)
    error.__dict__.update(fields)
    return error


def recoverable(error: Error) -> RecoverableError:
    """An error of IPUs that failed, or of which there are none at the moment."""
    if isinstance(error, RecoverableError):
        return error
    return RecoverableError(
        error.message, type=error.type, location=error.location, recovery_action="IPU_RESET"
    )


def py_error(text: str) -> Error:
    """An error of the Python layer: its text begins with 'poptorch_py_error'."""
    return Error(f"'poptorch_py_error': {text}", message=text, type="poptorch_py_error")


def cpp_error(text: str) -> Error:
    """An error that the original raises from its native layer."""
    return Error(text, type="poptorch_cpp_error")


# --- Options.
GRADIENT_TRACKING = (
    "automaticLossScalingSettings.gradientTensorTrackingMethod must be 0: all gradients except"
    " those of views are tracked"
)
LOSS_SCALE_PERIOD = (
    "automaticLossScalingSettings.updatePeriod is %d, must be from 1 to 16777216"
)
FROZEN = "Can't modify frozen Options"
INVALID_ATTRIBUTE = "Invalid attribute %s."
INVALID_OPTION = "Invalid option %s, valid options are %s"
INVALID_PRIVATE_ATTRIBUTE = "Invalid private attribute %s. Valid attributes: %s"
MERGE_CONFLICT = "Several groups of options have these names: %s"
NO_OUTPUT_MODE = "An output mode must be picked before serialisation"
UNEXPECTED_TYPE = "Unexpected type %s for option %s. Expected %s"
OUT_OF_RANGE = "%s is %s, must be %s"
WRONG_TYPE = "%s is %s, must be %s"
EVERY_N_PERIOD = "EveryN anchor must have output_return_period set to valid positive integer"
PERIOD_IGNORED = "Anchor return period argument ignored with output_mode set to %s"
GROUP_TYPE_ALL = "input_group_type cannot be All"
GROUP_TOO_LARGE = "input_group_size cannot be larger than replication_factor"
GROUP_NO_FACTOR = "input_group_size must be a factor of replication_factor"
IO_TILES = "numIOTiles must be an even number between 32 and 192."
IPU_VERSION = "Invalid IPU model version. Valid versions: ipu1, ipu2, ipu21."
MEMORY_PROPORTION = (
    'Available memory proportions are expected to be in a dictionary of {"IPU0": 0.5}, with the'
    " number of an IPU in each key and a proportion between 0 and 1, but got %s"
)
PARTIALS_TYPE = "parameter to setPartialsType should be either torch.float or torch.half"
REDUCTION_TYPE = "%s must be set to poptorch.ReductionType.Mean or poptorch.ReductionType.Sum"
TRACE_MODEL = "options.Jit.traceModel(True) is no longer supported"
RUNNING_STATISTICS = "runningStatisticsAlwaysFloat needs to be set to a bool"
DEPRECATED_TRACE_MODEL = (
    "[Deprecated] Do not call options.Jit.traceModel(): models are always captured by running them."
)
DEPRECATED_CASTING = (
    "[Deprecated] Do not call options.Precision.halfFloatCasting(): operators of half and float32"
    " inputs compute in float32, as in PyTorch."
)
DEPRECATED_STATISTICS = (
    "[Deprecated] Do not call options.Precision.runningStatisticsAlwaysFloat(): running statistics"
    " have their own type, as in PyTorch."
)
CACHE_DIR = "POPTORCH_CACHE_DIR is set: setting cache path to %s"
LOG_DIR_IGNORED = "logDir in _Popart.set() is ignored: use poptorch.Options.logDir()"
PROFILING_OVERRIDDEN = (
    "Profiling setting overridden by environment variable. Check content of POPLAR_ENGINE_OPTIONS."
)
ENGINE_OPTIONS_SYNTAX = "POPLAR_ENGINE_OPTIONS is %r, must be a map of strings in JSON"
ENVIRONMENT_INTEGER = "The environment variable %s is %r, must be an integer"
UNKNOWN_POPART_OPTION = "Unknown %s option %s"
UNKNOWN_POPART_TYPE = "Unknown value type %s for option %s"
CONFIG_ERROR = "%s at line %d of %s: %s\n> %s"
CONFIG_FILE = "Cannot read the options' file %s: %s"
CONFIG_NO_CALL = "must be one call of a setter of poptorch.Options"
JSON_SYNTAX = "The options are not a JSON object of setters and their arguments: %s"
JSON_SETTER = "%r in the options is not a setter of poptorch.Options"

# --- Blocks and strategies.
ALREADY_BLOCK = "module has already been assigned to a block."
NOT_A_MODULE = "module is not an instance of torch.nn.Module or  function."
NO_ACTIVE_BLOCK = "No active Block, all the ops must belong to a Block"
NO_IPU_FOR_BLOCK = (
    "poptorch.AutoStage.SameAsIpu was selected but no IPU was specified for block %s"
)
NO_PHASES = (
    "There is currently no AutoStage for PhasedExecution, please explicitly specify the phases"
)
UNKNOWN_BLOCK = "Unknown Block '%s' list of expected Blocks: %s"
BLOCK_TWICE = "%s associated with more than one stage"
BLOCK_IDS = "Ids of blocks must be strings, but got %s"
STAGE_ARGUMENTS = "The stages of %s must be Stages, ids of blocks or lists of ids, but got %s"
PHASE_ARGUMENTS = "The arguments of %s must be Phases, Stages, ids of blocks or lists, but got %s"
PHASE_MIXED = "All arguments of a Phase must be ids of blocks (strings), or all Stages, but got %s"
PHASE_IPUS = "Phase contains %d stages but you provided %d ipus"
PHASE_INDEX = "The phase is %s, must be an integer between 0 and %d"
STAGES_DESCEND = (
    "Block '%s' has %s %d, but the block before it, '%s', has %d: stages must not descend in the"
    " order of execution. Use poptorch.AutoStage.AutoIncrement to return to an earlier IPU."
)
NESTED_CAPTURE = "A model is being captured: models cannot be captured inside one another"

# --- Optimisers.
ACCUMULATION_TYPES = "Accumulation types must be either torch.float32 or torch.float16"
ACCUMULATION_TYPE = "%s must be set to either torch.float16 or torch.float32 not %s"
AMSGRAD = "Only non-amsgrad Adam/AdamW optimizers are supported."
BETAS_PAIR = "'betas' group attribute must be a pair"
CENTERED = (
    "All parameter groups must have the same value for the 'centered' attribute (Group 0: %s /"
    " Group %d: %s)"
)
CONSTANT_CHANGED = (
    "The attribute '%s' of %s is constant and cannot change from %s to %s. Before the model is"
    " compiled, call optimizer.variable_attrs.markAsVariable('%s'), or pass the attribute to the"
    " constructor of an optimiser of poptorch.optim."
)
EMPTY_STATE = "Cannot load optimizer state dictionary because it is empty."
EXPECTED_NUMBER = "Expected a number for %s but got %s instead"
EXPECTED_PAIR = "Expected a pair for %s but got %s instead"
FIXED_CHANGED = "The %s of the optimizer cannot change from %s to %s: the model is compiled"
FOREIGN_STATE = "Only IPU optimizer states can be loaded onto the IPU."
GRADIENT_NORM_NAN = "Maximum norm of gradients cannot be NaN"
GROUP_MISSING = "Mandatory attribute %s not found in optimizer group"
GROUP_NO_DICT = "%s must be stored in param_groups"
MAXIMIZE = "maximize is not supported by %s"
NOT_NAN = "%s must not be NaN"
ONLY_RMSPROP = "%s is only available with RMSProp optimizers."
RUNNING_NEEDED = (
    "Invalid optimizer: its float16 accumulators need options.Training."
    "meanAccumulationAndReplicationReductionStrategy to be changed to"
    " poptorch.MeanReductionStrategy.Running but the executable is already compiled."
)
SUBCLASSED_OPTIMIZER = (
    "Optimizer `%s` subclassed from classes in poptorch.optim or torch.optim are unlikely to behave"
    " as intended. Poptorch does not run Python optimizer code directly; it reads the attributes,"
    " and the IPU updates parameters as `%s` does."
)
UNEXPECTED_GROUP_ATTRIBUTE = "Ignoring unexpected group %d attribute in %s optimizer: %s"
UNEXPECTED_OPTIMIZER_ATTRIBUTE = "Ignoring unexpected optimizer attribute in %s optimizer: %s"
UNKNOWN_ATTRIBUTE = "Unknown attribute %s, allowed values: %s"
UNSUPPORTED_OPTIMIZER = "Unsupported optimizer type. Types supported %s"
VELOCITY_SCALING_IGNORED = (
    "velocity_scaling value ignored when using the separate variant (use_combined_accum=False)."
)

# --- Operators of poptorch.ops.
AVAILABLE_MEMORY_RANGE = "available_memory_proportion is %s, must be a number from 0 to 1"
CHECKPOINT_TENSOR = "poptorch.recomputationCheckpoint takes tensors, but got %s"
CPU_ANCHORS = "A model with poptorch.CPU has several programs: it cannot have anchored tensors"
CPU_CALLABLE = "poptorch.CPU calls a function or a module, but got %s"
CPU_DEVICE_ID = (
    "A model with poptorch.CPU has several programs, each on IPUs of its own: useIpuId cannot say"
    " on which"
)
CPU_INPUT_GROUPS = "A model with poptorch.CPU must have an inputReplicaGrouping of size 1"
CPU_LOADED_ALONE = (
    "its model calls functions of the host (poptorch.CPU), which poptorch.load brings with the"
    " model, and loadExecutable does not"
)
CPU_SAVED_ALONE = (
    "A model with poptorch.CPU is saved with export_model=True only: its functions of the host are"
    " saved with the model"
)
CPU_TRANSFERS = "A model with poptorch.CPU has several programs: it has no performance counters"
CPU_WRITES = (
    "'%s' is written by a model with poptorch.CPU, and used in another part of it between two calls"
    " of the host: each part has parameters and buffers of its own"
)
CTC_EAGER = (
    "poptorch.ctc_beam_search_decoder cannot run: neither the host nor these IPUs have the operator"
)
CTC_SHAPES = (
    "poptorch.ctc_beam_search_decoder takes probs of shape [time, batch, classes] and lengths of"
    " shape [batch], but got %s and %s"
)
CUSTOM_OP_ASCII = "%s contains non-ASCII characters."
CUSTOM_OP_EAGER = (
    "The custom operator %s::%s, version %s, cannot run: custom operators are libraries for PopART,"
    " which is not part of this system"
)
CUSTOM_OP_KEY = "All attribute keys must be strings."
CUSTOM_OP_MIXED = "The types in a list/tuple attribute must all be the same."
CUSTOM_OP_RANGE = "%g is too %s for a Popart float attribute."
CUSTOM_OP_VALUE = "Attribute values must be floats, ints, strings, or a list or tuple of them."
DYNAMIC_DIMENSION = "Dimension must be an integer."
DYNAMIC_DIMENSION_RANGE = "Dimension is %d, must be one of the %d dimensions of the tensor"
DYNAMIC_SIZE = "Size must be an integer."
DYNAMIC_START = "start must be an integer tensor with one element, but is %s of shape %s"
DYNAMIC_STEP = "Step must be an integer."
DYNAMIC_UPDATE_RANK = "input and src tensors must have same dimensionality. (%d) vs (%d)"
DYNAMIC_UPDATE_SHAPE = "src has the shape %s, must have %s: that of the slice of input"
DYNAMIC_UPDATE_TYPE = "input and src tensor must have same dtype. (%s vs %s)"
LOOP_COUNT = "poptorch.for_loop: count is %s, must be an integer of 0 or more"
LOOP_LIST = (
    "poptorch.for_loop expects input tensors (inputs) to be a list of tensors. (Object is not list)"
)
LOOP_RESULT = "poptorch.for_loop: result %d of body is of %s, must be a tensor"
LOOP_RESULTS = "poptorch.for_loop: body returns %d tensors, must return %d, as many as it takes"
LOOP_SHAPE = (
    "poptorch.for_loop: result %d of body is %s of shape %s, must be %s of shape %s like the"
    " argument, because it is the argument of the next turn"
)
LOOP_TENSOR = (
    "poptorch.for_loop expects input tensors (inputs) to be a list of tensors. (Object contained in"
    " list at index %d is not torch.tensor)"
)
LOOP_TRAINING = "poptorch.for_loop() is only supported in inference"
MULTI_CONV_COUNT = "%s of poptorch.MultiConv has %d values for %d convolutions"
MULTI_CONV_DITHERING = "value must be bool or list of bools"
MULTI_CONV_EMPTY = "Unexpected end_multi_conv: there is no convolution in poptorch.MultiConv"
MULTI_CONV_IGNORED = (
    "poptorch.MultiConv: %s changes nothing, because convolutions run one after the other on all"
    " tiles"
)
MULTI_CONV_NESTED = "Nested poptorch.MultiConv is not supported."
MULTI_CONV_PARTIALS = "Invalid partials types. Expecting torch.float or torch.half"
OPERAND_TENSOR = "%s must take a torch.tensor input. %s is not supported."
OVERLAP_IO_TILES = (
    "No IO tiles allocated. You must allocate at least 32 IO tiles using"
    " poptorch.Options().TensorLocations.numIOTiles."
)
OVERLAP_MODE = "The mode of an overlap is %s, must be one of poptorch.OverlapMode"
OVERLAP_NOT_ALONE = (
    "poptorch.set_overlap_for_input must be the only op applied to an input. This is not the case"
    " for input %d to the model."
)
OVERLAP_NO_EFFECT = (
    "poptorch.set_overlap_for_input and poptorch.set_overlap_for_output do not change the time of a"
    " run"
)
OVERLAP_NO_INPUT = (
    "poptorch.set_overlap_for_input applied on a node which is not a tensor input to the model."
)
OVERLAP_NO_OUTPUT = (
    "poptorch.set_overlap_for_output applied on a node which is not a tensor output to the model."
)
OVERLAP_OUTPUT_MODE = (
    "Unsupported output mode for overlapped IO. Only poptorch.OutputMode.All and"
    " poptorch.OutputMode.Sum have overlapped outputs."
)
OVERLAP_PIPELINED = (
    "Overlapped IO is not supported with poptorch.PipelinedExecution. If you are using only one"
    " IPU, please switch to poptorch.ShardedExecution."
)
OVERLAP_RETURNED_TWICE = (
    "poptorch.set_overlap_for_output cannot be used with a tensor that is returned twice. Please"
    " check all returned tensors including those nested in tuples/lists."
)
PRINT_GRADIENT = (
    "poptorch.ipu_print_tensor: the gradient of '%s' is not printed: models on IPUs print values of"
    " forward alone. print_gradient=False silences this warning."
)
PRINT_IN_BACKWARD = "poptorch.ipu_print_tensor is not supported in backward functions."
SERIALIZED_DIMENSIONS = (
    "poptorch.serializedMatMul takes matrices, but the operands have %d and %d dimensions"
)
SERIALIZED_FACTOR = (
    "The factor of poptorch.serializedMatMul is %d, must divide the %d elements of the dimension"
    " '%s'"
)
SLICE_DESCENDS = (
    "Taking a slice of a tensor with the end less than the start is not supported."
)
SLICE_EMPTY = "The start and end of a slice must be different."
SLICE_FACTOR = "The size of the slice (%d) must be a factor of the slicing dimension (%d)."
SLICE_STEP = "The step of a slice is %d, must be 1 or more"
SLICE_TOO_LONG = "The size of the slice (%d) must be at most that of the slicing dimension (%d)."

# --- Groups of replicas.
GROUPING_LATE = (
    "replicaGrouping must be called before the model is compiled: call destroy() first, and wrap"
    " the model again"
)
GROUPING_NORMS = (
    "The parameter '%s' has a value for each group of replicas, of which %s would take one norm"
)
GROUPING_RETRIEVAL = (
    "The parameter '%s' has %d rows, and VariableRetrievalMode.AllReplicas would return the values"
    " of all %d replicas: choose OnePerGroup"
)
GROUPING_ROWS = (
    "The parameter '%s' has %d rows, must have %d: one for each group of replicas, as"
    " replicaGrouping says"
)
GROUPING_SCALAR = "Scalars cannot be passed as per-replica weight tensor values: '%s' is one"
GROUPING_SIZE = (
    "The parameter '%s' is for groups of %d replicas, must be for a factor of the %d replicas"
)

# --- IPUs.
HELD_BY_THIS_PROCESS = (
    "%s. That is this process%s: call detachFromDevice() or destroy() of the model that has the"
    " IPUs"
)
JOB_NOT_INITIALISED = (
    "The environment makes this process an instance of a job of poprun (%s), but popdist.init() was"
    " never called: models take the replicas and IPUs of that instance. Call popdist.init() before"
    " the first model, or unset the variables if poprun has not started the program"
)
WEIGHTS_LOST = (
    "The IPUs have failed, and the weights that they have trained since the host last read them are"
    " lost: the model goes on from the host's"
)
STREAMS_TOO_LARGE = (
    "The inputs and results of a call take more than the %d bytes that a replica has for them: %s"
    " has %d bytes in each of %s. %s"
)
FEWER_ITERATIONS = "Set Options.deviceIterations, which is %d, to %d or less."
SMALLER_BATCHES = "Choose a smaller batch_size of the DataLoader."
FEWER_RESULTS = " OutputMode.Final, Sum and EveryN return fewer results."

# --- Arguments.
ARGUMENT_MISSING = "Mandatory parameter %s missing"
ARGUMENT_TWICE = "Parameter %s was passed more than once"
DICTIONARY_ARGUMENT = (
    "Dicts as inputs only have partial support, they can be accessed using literal keys, and the"
    " keys that a model is compiled with must not change. Consider tuples instead."
)
DTYPE_MISMATCH = "Data type mismatch for %s: expected %s but got %s"
INPUTS_CHANGED = (
    ". The inputs don't match those the model was compiled with: to compile it for others, create"
    " a new trainingModel or inferenceModel, or call destroy() on this one and try again."
)
KEYS_MISMATCH = "Keys mismatch for %s: %s"
LENGTH_MISMATCH = "Length mismatch for %s: expected %d elements but got %d"
MISSING_KEYS = "Missing arguments: %s"
NOT_CONTIGUOUS = (
    "At least one input tensor is not contiguous: non-contiguous tensors will be converted."
)
NO_CUSTOM_PARSER = "arg_parser must inherit from ICustomArgParser"
NO_MODEL = "Expected a torch.nn.Module or a callable"
POSITIONAL_MISMATCH = (
    "Number of positional arguments mismatch: expected %d arguments but got %d"
)
STATE_ADDED = (
    "The model was compiled without the parameter or buffer '%s': call destroy() and wrap the model"
    " again"
)
STATE_CHANGED = (
    "The parameter or buffer '%s' was %s when the model was compiled, and %s now: call destroy()"
    " and wrap the model again"
)
SHAPE_MISMATCH = "Shape mismatch for %s: expected %s but got %s"
TOO_MANY_ARGUMENTS = "Too many arguments provided: expected %s (%d) but got %d"
TYPE_MISMATCH = "Type mismatch for %s: expected %s but got %s"
UNEXPECTED_KEYS = "Unexpected arguments: %s"
UNKNOWN_ARGUMENT = "%s is not a valid parameter.Allowed values are %s"
VALUE_MISMATCH = "Value mismatch for %s: expected %s but got %s"

# --- Files of compiled models.
COMPILED_AGAIN = (
    "loadExecutable(): %s was compiled with other options or by another version of the compiler:"
    " its model is compiled again"
)
FILE_VERSION = (
    "Invalid file %s: PopTorch version mismatch: File was created with version: %s and this is"
    " version %s"
)
INVALID_FILE = "Invalid file %s: %s"
NO_FOLDER = "Destination folder %s is not a directory"
NO_MODEL_IN_FILE = (
    "%s is a valid PopTorch file but was created with 'export_model=False' which means you need to"
    " re-create the PopTorch model using poptorch.inferenceModel or poptorch.trainingModel then"
    ' call poptorch_model.loadExecutable("%s").'
)
POPEF_FILE = (
    "it is a PopEF file, with instructions of real IPUs that virtual ones do not have: compile the"
    " model here, and save it with PoplarExecutor.save"
)
NOT_SAVED = "The model cannot be saved to %s: %s"
OFFLINE_IPU_MODEL = (
    "ConnectionType.Never / poptorch.Options.useOfflineIpuTarget not supported for the IPU model"
)

# --- Results.
BACKWARD = (
    "backward() cannot be called explicitly on outputs of a PopTorch model: each call of a"
    " trainingModel runs the backward pass, and an inferenceModel has none."
)

# --- Logging.
LEVEL_INTEGER = "Invalid log level integer"
LEVEL_NAME = "Unknown log level: %s. Valid values are DEBUG, ERR, INFO, OFF, TRACE and WARN"
LEVEL_ONE_OF = "Level must be one of %s"
LOG_DESTINATION = "POPTORCH_LOG_DEST: the file %s cannot be written: %s"
