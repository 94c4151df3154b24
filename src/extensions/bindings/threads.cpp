// The log of parallel regions, and what the thread pool costs.
#include "bindings/threads.h"

#include <nanobind/stl/string.h>

#include "cpu/runtime/limits/pool_costs.h"
#include "cpu/runtime/region_log.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tiny_llm_ext {

void define_threads(nb::module_& m) {
  m.def(
      "start_region_log", &cpu::start_region_log,
      "From now on, keep what each parallel region of CPU kernels costs, in all threads. For measurements.");
  m.def(
      "end_region_log",
      [] {
        nb::list regions;
        for (const cpu::Region& region : cpu::end_region_log()) {
          nb::dict d;
          d["operation"] = region.operation;
          d["items"] = region.items;
          d["threads"] = region.threads;
          d["begin"] = region.begin;
          d["end"] = region.end;
          d["busy"] = region.busy;
          d["longest"] = region.longest;
          regions.append(d);
        }
        return regions;
      },
      nb::sig("def end_region_log() -> list[dict[str, typing.Any]]"),
      "End the log and return its regions in the order of their ends, as dictionaries: operation, items, "
      "threads\n"
      "(that were offered items), begin and end, busy (time within items, of all threads together) and "
      "longest\n"
      "(of the busiest thread), in nanoseconds. With 0 items: a whole operation with all of its regions.");
  m.def(
      "pool_costs",
      [](int threads) {
        cpu::PoolCosts costs;
        {
          nb::gil_scoped_release release;
          costs = cpu::pool_costs(threads);
        }
        nb::dict d;
        d["region"] = costs.region;
        d["wake"] = costs.wake;
        d["barrier"] = costs.barrier;
        return d;
      },
      "threads"_a, nb::sig("def pool_costs(threads: int) -> dict[str, float]"),
      "Seconds, as medians, of a parallel region without work in which every thread takes part; of the same "
      "after\n"
      "the threads fell asleep ('wake'); and of a barrier within a region.");
}

}  // namespace tiny_llm_ext
