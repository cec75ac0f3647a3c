# Everything comes from Debian 12; deploy/setup installs the packages. Protobuf's module must be found before gRPC's
# config file asks for it.
find_package(Threads REQUIRED)
find_package(absl REQUIRED CONFIG)
set(PROTOBUF_USE_STATIC_LIBS OFF)
find_package(Protobuf REQUIRED)
find_package(gRPC REQUIRED CONFIG)
find_package(glog REQUIRED CONFIG)
find_package(GTest REQUIRED CONFIG)
find_package(benchmark REQUIRED CONFIG)
find_package(nlohmann_json REQUIRED CONFIG)
find_package(Boost 1.81 REQUIRED CONFIG COMPONENTS headers)  # Beast: older ones don't have its coroutines
find_package(CLI11 REQUIRED CONFIG)
find_package(yaml-cpp REQUIRED CONFIG)
# Its core alone: what its own CMake package names needs more packages.
find_library(PROMETHEUS_CORE prometheus-cpp-core REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(LIBEDIT REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
