// The fields of an explanation by name.
#include "bindings/explanations.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;

namespace tiny_llm_ext {

nb::dict to_dict(const Explanation& e) {
  nb::dict d;
  d["path"] = e.path;
  d["fused"] = e.fused;
  d["reasons"] = nb::tuple(nb::cast(e.reasons));
  d["schedule"] = e.schedule;
  d["tile"] = nb::make_tuple(e.tile_rows, e.tile_keys);
  d["splits"] = e.splits;
  d["tiles_visited"] = e.tiles_visited;
  d["tiles_total"] = e.tiles_total;
  d["mask_read"] = e.mask_read;
  d["copies_bytes"] = e.copies_bytes;
  d["workspace_bytes"] = e.workspace_bytes;
  d["workspace_bytes_backward"] = e.workspace_bytes_backward;
  d["saved_bytes"] = e.saved_bytes;
  d["math"] = e.math;
  d["deterministic"] = e.deterministic;
  d["batch_invariant"] = e.batch_invariant;
  d["backward_path"] = e.backward_path;
  d["backward_schedule"] = e.backward_schedule;
  return d;
}

}  // namespace tiny_llm_ext
