# Durability of checkpoints: each program alone, a short form in the suite; tests/durability/long runs the long ones.
if(ORRERY_HAVE_CPU_BACKEND)
  add_library(durability_support STATIC ${CMAKE_CURRENT_LIST_DIR}/tiny_run.cpp
                                        ${CMAKE_CURRENT_LIST_DIR}/../exec/training_support.cpp)
  target_link_libraries(durability_support PUBLIC orrery::exec orrery::exec_cpu GTest::gtest orrery_flags)
  target_compile_definitions(durability_support PRIVATE ORRERY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_custom_target(durability)
  foreach(program fault_files power_cut mutations)
    add_executable(durability_${program} ${CMAKE_CURRENT_LIST_DIR}/${program}.cpp)
    target_link_libraries(durability_${program} PRIVATE durability_support)
    add_dependencies(durability durability_${program})
    add_test(NAME durability.${program} COMMAND durability_${program})
    # A rank that fails alone leaves the other waiting: then the test runs out of time.
    set_tests_properties(durability.${program} PROPERTIES LABELS durability TIMEOUT 120)
  endforeach()
endif()
