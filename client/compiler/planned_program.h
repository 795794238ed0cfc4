// A program that `vpod plan` runs to have what it compiles: without a POD, up to its first session
// (client/session/leave_for_plan.h).
#pragma once

#include "client/compiler/compiler.h"

namespace vpod::compiler {

// Names the directory in which the executable is to be left.
inline constexpr char kPlanDirectoryVariable[] = "VPOD_PLAN_DIRECTORY";
// The replicas that it is compiled for, if their number matters.
inline constexpr char kPlanReplicasVariable[] = "VPOD_PLAN_REPLICAS";
// Set if the plan is to say what makes a program fit that does not.
inline constexpr char kPlanExplainVariable[] = "VPOD_PLAN_EXPLAIN";

// Whether this process is such a program. Then devices are stand-ins.
bool IsPlannedProgram();
// Whether it is one whose plan is to explain what does not fit.
bool IsExplainedProgram();

// How such a program is compiled: even if it does not fit, and for the replicas that the
// environment names; otherwise for several, since gradients of one need no collectives, and for as
// many as share out the state of the optimiser if it does not know their number itself.
CompileOptions OptionsForPlan(CompileOptions options);

}  // namespace vpod::compiler
