// The part of metal-cpp that MLX's device header names, for the recording device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace NS {

using UInteger = unsigned long;
class AutoreleasePool;
template <typename T>
using SharedPtr = std::shared_ptr<T>;

}  // namespace NS

namespace MTL {

class Allocation;
class Buffer;
class CommandBuffer;
class CommandQueue;
class Device;
class Fence;
class Function;
class Heap;
class Library;
class LinkedFunctions;
class ResidencySet;
class Resource;

enum DataType : NS::UInteger { DataTypeInt = 29 };

struct Size {
  Size(NS::UInteger width, NS::UInteger height, NS::UInteger depth)
      : width(width), height(height), depth(depth) {}
  NS::UInteger width, height, depth;
};

class ComputePipelineState {
 public:
  NS::UInteger maxTotalThreadsPerThreadgroup() const;
};

class ComputeCommandEncoder {
 public:
  void setComputePipelineState(ComputePipelineState* pipeline);
  void setBytes(const void* bytes, NS::UInteger length, NS::UInteger slot);
  void setThreadgroupMemoryLength(NS::UInteger length, NS::UInteger slot);
};

}  // namespace MTL
