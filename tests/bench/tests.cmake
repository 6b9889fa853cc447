# Programs that print times; nothing is judged here. scripts/bench-network builds and runs them.
add_executable(bench_all_reduce EXCLUDE_FROM_ALL ${CMAKE_CURRENT_SOURCE_DIR}/bench/all_reduce.cpp)
target_link_libraries(bench_all_reduce PRIVATE orrery::sim orrery_flags)
target_compile_definitions(bench_all_reduce PRIVATE ORRERY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")

# Bytes, not times. scripts/bench-arena builds and runs it.
add_executable(bench_arena EXCLUDE_FROM_ALL ${CMAKE_CURRENT_SOURCE_DIR}/bench/arena.cpp)
target_link_libraries(bench_arena PRIVATE orrery::plan orrery_flags)
target_include_directories(bench_arena PRIVATE ${PROJECT_SOURCE_DIR})

# scripts/bench-tables builds it and runs it beside PyTorch.
if(ORRERY_HAVE_CPU_BACKEND)
  add_executable(bench_tables EXCLUDE_FROM_ALL ${CMAKE_CURRENT_SOURCE_DIR}/bench/tables.cpp)
  target_link_libraries(bench_tables PRIVATE orrery::exec_cpu orrery::plan orrery_flags)

  # scripts/bench-mixture does.
  add_executable(bench_mixture EXCLUDE_FROM_ALL ${CMAKE_CURRENT_SOURCE_DIR}/bench/mixture.cpp)
  target_link_libraries(bench_mixture PRIVATE orrery::exec_cpu orrery::plan orrery_flags)
endif()

# Neither: what the walks over a schedule find. scripts/compare-replays builds and runs it.
add_executable(bench_replays EXCLUDE_FROM_ALL ${CMAKE_CURRENT_SOURCE_DIR}/bench/replays.cpp)
target_link_libraries(bench_replays PRIVATE orrery::sim orrery_flags)
target_include_directories(bench_replays PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_definitions(bench_replays PRIVATE ORRERY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
