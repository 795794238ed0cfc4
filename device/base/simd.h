// Own kernels choose their instruction set at run time. Each marked function is compiled for three
// levels; it must give the same bits at each, which holds for element-by-element loops without
// contraction (-ffp-contract=off).
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define VPOD_SIMD  // the sanitizers' runtimes are not up when the dynamic linker resolves clones
#else
#define VPOD_SIMD \
  __attribute__((optimize("O3"), target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
