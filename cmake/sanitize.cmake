# Builds that look for our own mistakes while they run; scripts/sanitize and scripts/fuzz configure them, in folders of
# their own.
#   address   AddressSanitizer and UndefinedBehaviorSanitizer; with clang the counters of libFuzzer too, so that one
#             build serves the unit suite and the fuzz targets
#   thread    ThreadSanitizer
set(ORRERY_SANITIZE "" CACHE STRING "address, thread, or nothing")

if(ORRERY_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")  # assertions of the standard library and of Eigen stay
  set(ORRERY_HARDENING OFF)                      # a checked call is one that the sanitizers do not see
  set(ORRERY_WERROR OFF)                         # their code brings warnings of its own
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_compile_definitions(_GLIBCXX_ASSERTIONS ORRERY_SANITIZED)  # clang 14 has no macro that says so
  if(ORRERY_SANITIZE STREQUAL address)
    set(sanitizers -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all)
    if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
      add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
    endif()
  elseif(ORRERY_SANITIZE STREQUAL thread)
    set(sanitizers -fsanitize=thread)
  else()
    message(FATAL_ERROR "ORRERY_SANITIZE is \"${ORRERY_SANITIZE}\"; address and thread are known")
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${sanitizers}>")
  add_link_options(${sanitizers})
  find_program(LLD ld.lld)
  if(LLD AND CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    add_link_options(-fuse-ld=lld)
  endif()
endif()
