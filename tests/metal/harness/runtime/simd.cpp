// Operations of a SIMD group: lanes wait until the last lane arrives, which computes the result.
#include <cmath>
#include <cstring>

#include "threadgroup.h"

namespace harness {
namespace {

enum Operation { kSum, kMax, kMin, kShuffle, kMultiply };

float as_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

uint32_t as_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

SimdGroup& own_group() { return simd_groups[running / kLanes]; }

float reduce(const uint32_t* slot, int operation) {
  float x[kLanes];
  for (int i = 0; i < kLanes; i++) x[i] = as_float(slot[i]);
  for (int width = kLanes / 2; width; width /= 2)
    for (int i = 0; i < width; i++)
      x[i] = operation == kSum   ? x[i] + x[i + width]
             : operation == kMax ? fmaxf(x[i], x[i + width])
                                 : fminf(x[i], x[i + width]);
  return x[0];
}

// A lane holds the elements (row, column) and (row, column + 1) of an 8 x 8 matrix.
int row_of(int lane) { return lane / 4 & 4 | lane / 2 % 4; }
int column_of(int lane) { return (lane / 4 & 2) * 2 + lane % 2 * 2; }

void multiply(const float (*operands)[4], float (*product)[2]) {
  float a[8][8], b[8][8];
  for (int lane = 0; lane < kLanes; lane++)
    for (int i = 0; i < 2; i++) {
      a[row_of(lane)][column_of(lane) + i] = operands[lane][i];
      b[row_of(lane)][column_of(lane) + i] = operands[lane][2 + i];
    }
  for (int lane = 0; lane < kLanes; lane++)
    for (int i = 0; i < 2; i++) {
      float sum = 0;
      for (int k = 0; k < 8; k++) sum += a[row_of(lane)][k] * b[k][column_of(lane) + i];
      product[lane][i] = sum;
    }
}

// All lanes have arrived.
void finish(SimdGroup& group) {
  if (group.operation == kMultiply)
    multiply(group.operands[group.turn], group.product[group.turn]);
  else if (group.operation != kShuffle)
    group.result[group.turn] = as_bits(reduce(group.slot[group.turn], group.operation));
  Thread* first = threads + running / kLanes * kLanes;
  for (int i = 0; i < kLanes; i++) first[i].wait = Wait::nothing;
  group.turn ^= 1;
  group.arrived = 0;
}

// Contributes a lane's bits to the operation; returns the turn that holds the result.
int meet(uint32_t bits, int operation, int line) {
  SimdGroup& group = own_group();
  int turn = group.turn;
  group.slot[turn][running % kLanes] = bits;
  if (group.arrived == 0) {
    group.operation = operation;
    group.line = line;
  } else if (group.operation != operation || group.line != line) {
    group.mixed = true;
  }
  group.arrived++;
  if (group.arrived == kLanes && !group.mixed)
    finish(group);
  else
    wait_here(Wait::simd_operation, line, 0);
  return turn;
}

}  // namespace
}  // namespace harness

using namespace harness;

extern "C" {
float harness_reduce(float value, int operation, int line) {
  int turn = meet(as_bits(value), operation, line);
  return as_float(own_group().result[turn]);
}

uint32_t harness_shuffle(uint32_t bits, uint32_t source, int line) {
  int turn = meet(bits, kShuffle, line);
  return own_group().slot[turn][source < kLanes ? source : running % kLanes];
}

uint64_t harness_multiply(float a0, float a1, float b0, float b1, int line) {
  SimdGroup& group = own_group();
  int lane = running % kLanes;
  float* operands = group.operands[group.turn][lane];
  operands[0] = a0, operands[1] = a1, operands[2] = b0, operands[3] = b1;
  const float* product = group.product[meet(0, kMultiply, line)][lane];
  return uint64_t{as_bits(product[1])} << 32 | as_bits(product[0]);
}

uint32_t harness_lane() { return running % kLanes; }

void harness_threadgroup_barrier(int flags, int line) { wait_here(Wait::threadgroup_barrier, line, flags); }
void harness_simdgroup_barrier(int flags, int line) { wait_here(Wait::simdgroup_barrier, line, flags); }
}
