# The kernels of this processor: one object library per instruction set, so that its flags reach no other code.
# isa.cpp lists the same names with what each needs at run time. After including this file CPU_ISAS holds the
# names, and a target that links to cpu_kernels gets the kernels, the choice among them and the thread pool.
set(CPU_ISAS scalar)
set(cpu_flags_scalar "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND CPU_ISAS avx2 avx512 avx512bf16 amx)
  set(cpu_flags_avx2 -mavx2 -mfma -mf16c)
  set(cpu_flags_avx512 ${cpu_flags_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
  set(cpu_flags_avx512bf16 ${cpu_flags_avx512} -mavx512bf16)
  set(cpu_flags_amx ${cpu_flags_avx512bf16} -mavx512vbmi -mavx512vnni -mamx-tile -mamx-bf16 -mamx-int8)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND CPU_ISAS neon)
  set(cpu_flags_neon "")
endif()

# Every rounding is the one the source says, in all of the extension: the kernels compare sums that are rounded in
# the same way in different places, which a compiler that fuses a product into an addition breaks.
set(EXACT_ROUNDING -ffp-contract=off)

find_package(Threads REQUIRED)
add_library(cpu_kernels INTERFACE)
target_include_directories(cpu_kernels INTERFACE ${CMAKE_CURRENT_LIST_DIR}/..)
target_compile_features(cpu_kernels INTERFACE cxx_std_20)
target_compile_options(cpu_kernels INTERFACE ${EXACT_ROUNDING})
target_link_libraries(cpu_kernels INTERFACE Threads::Threads)

function(add_cpu_objects name)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/..)
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_compile_options(${name} PRIVATE ${EXACT_ROUNDING})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden)
  target_sources(cpu_kernels INTERFACE $<TARGET_OBJECTS:${name}>)
endfunction()

add_cpu_objects(cpu_dispatch ${CMAKE_CURRENT_LIST_DIR}/isa.cpp ${CMAKE_CURRENT_LIST_DIR}/pool.cpp)
foreach(isa IN LISTS CPU_ISAS)
  add_cpu_objects(cpu_${isa} ${CMAKE_CURRENT_LIST_DIR}/isa_${isa}.cpp)
  target_compile_options(cpu_${isa} PRIVATE ${cpu_flags_${isa}})
  target_compile_definitions(cpu_${isa} PRIVATE TINY_LLM_ISA=${isa})
endforeach()
