// From the arrays of a call to the primitive's input list and back, and to the plain numbers of a Problem.
#pragma once

#include "core/checks.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

std::vector<mx::array> pack(const AttentionInputs& inputs);
AttentionInputs unpack(const std::vector<mx::array>& arrays, const AttentionParams& params);

// Name of input number n of the primitive.
const char* input_name(int n, const AttentionParams& params);

// Layouts of arrays that are not evaluated yet are unknown and taken as dense.
Problem make_problem(const AttentionInputs& inputs, const AttentionParams& params, mx::Device device);

mx::Shape batch_shape(const AttentionInputs& inputs);

bool has_lengths(const SequenceLengths& lengths);

// The lengths of every sequence of the batch, read from arrays whose data is there; `wrong` is called for a
// value out of range.
std::vector<Sequence> read_sequences(const SequenceLengths& lengths, const mx::Shape& batch, int64_t L,
                                     int64_t S, const Wrong& wrong);

// Likewise those of a paged call, from the inputs of its primitive; a context of 0 or less is empty. And how
// many tokens the pages in a row of its block table hold.
std::vector<Sequence> read_contexts(const std::vector<mx::array>& inputs, const Wrong& wrong);
int64_t slots_of_row(const std::vector<mx::array>& inputs);

// Whether the GPU kernels can read query, key or value where it lies; the kernel to read wants it dense.
bool gpu_reads_in_place(const mx::array& array, const mx::Shape& batch, bool readable);

// The shape in which the GPU kernels need a copy of a mask, sinks or lengths; none where they are read where
// they lie.
std::optional<mx::Shape> gpu_copy_shape(const mx::array& array, int trailing, const mx::Shape& batch);

}  // namespace tiny_llm_ext
