// The keywords of Metal that C++ lacks, for two compilers.
//
// clang -x clcpp (C++ for OpenCL) has address spaces, in which a mistake is an error, and makes a threadgroup
// array inside a kernel static. g++ is the second compiler: it ignores address spaces.
#pragma once

#define __METAL_VERSION__ 310

#if defined(__OPENCL_CPP_VERSION__)
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define device __global
#define threadgroup __local
#define thread __private
#define HARNESS_METHOD thread
#define HARNESS_IMPORT extern "C" __attribute__((convergent, noduplicate))
#else
#define device
#define constant const
#define HARNESS_METHOD
#if defined(HARNESS_SYNTAX_ONLY)
#define threadgroup
#else
#define threadgroup static  // right for an array, wrong for a pointer to one
#endif
#define thread
#define kernel extern "C"
#define HARNESS_IMPORT extern "C" __attribute__((noinline))
#endif

// Keywords of Metal for kinds of functions that we do not use; they must not be used as names.
#define vertex 0 is_a_word_of_metal
#define fragment 0 is_a_word_of_metal

#define METAL_FUNC inline
#define HARNESS_INLINE static inline __attribute__((always_inline))

// `constant int x [[function_constant(0)]];` has no value before a pipeline is built. Here x is weak, and the
// launcher defines the variable that replaces it.
#if defined(HARNESS_SYNTAX_ONLY)
#define function_constant(index) harness::given]] = 0; [[harness::end
#elif defined(__OPENCL_CPP_VERSION__)
#define function_constant(index) gnu::weak]] = 0; [[harness::end
#endif
