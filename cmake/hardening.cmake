# What compiler and linker add against a reader's mistake becoming somebody else's code: checked copies, canaries in
# front of return addresses, no jump over the stack's guard page, tables of the linker that nothing writes to, addresses
# that differ from run to run, no executable stack. tests/lint/hardening_test.sh looks for each in what was built.
# Sanitizers bring checks of their own, which a checked copy would hide calls from: such builds turn these off.
option(ORRERY_HARDENING "Compile and link with the usual defences" ON)

include(CheckPIESupported)
check_pie_supported()  # then programs that are compiled as position-independent are linked so, too

if(ORRERY_HARDENING)
  # Level 3 checks sizes that are computed as well; older compilers warn that they have 2. No level works without
  # optimisation.
  set(fortify 2)
  if((CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12)
     OR (CMAKE_CXX_COMPILER_ID STREQUAL Clang AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 9))
    set(fortify 3)
  endif()
  target_compile_options(orrery_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong;-fstack-clash-protection>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fstack-protector-strong,-fstack-clash-protection>")
  if(NOT CMAKE_BUILD_TYPE STREQUAL Debug)
    target_compile_options(orrery_flags INTERFACE
      "$<$<COMPILE_LANGUAGE:CXX>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=${fortify}>"
      "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-U_FORTIFY_SOURCE,-D_FORTIFY_SOURCE=${fortify}>")
  endif()
  target_link_options(orrery_flags INTERFACE -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
endif()
