package settings

// testSettings are read by the project's tests and by the SoftRoCE harness
// (docs/softroce.md) only.
var testSettings = []Setting{
	{
		Env: "RMA_REQUIRE_RDMA", Group: Tests, Type: Type{Kind: Switch}, Default: "0", EnvOnly: true,
		What: "a test that finds no RDMA device fails instead of being skipped", Where: "internal/testutil", Since: "0.1",
	},
	{
		Env: "RMA_LAUNCHERS", Group: Tests, Type: Type{Kind: Switch}, Default: "0", EnvOnly: true,
		What: "run the tests under real launchers; `make launchers` sets it", Where: "tests/launchers", Since: "0.1",
	},
	{
		Env: "RMA_REQUIRE_LAUNCHERS", Group: Tests, Type: Type{Kind: Switch}, Default: "0", EnvOnly: true,
		What: "a launcher test whose launcher is missing fails instead of being skipped", Where: "tests/launchers", Since: "0.1",
	},
	{
		Env: "RMA_RDMA_DEVICE", Group: Tests, Type: Type{Kind: Text}, Else: "the first one", EnvOnly: true,
		What: "RDMA device of one end of a test", Where: "internal/testutil", Since: "0.1",
	},
	{
		Env: "RMA_RDMA_DEVICE2", Group: Tests, Type: Type{Kind: Text}, Else: "the same", EnvOnly: true,
		What: "RDMA device of the other end", Where: "internal/testutil", Since: "0.1",
	},
	{
		Env: "RMA_TEST_SLOW", Group: Tests, Type: Type{Kind: Count}, Else: "1", EnvOnly: true,
		What: "factor by which this machine is slower than a real one: fewer repetitions, longer time-outs", Where: "internal/testutil", Since: "0.1",
	},
	{
		Env: "RMA_ZOO", Group: Tests, Type: Type{Kind: Text}, Else: "the device as it is", EnvOnly: true,
		What: "limits and habits that RDMA devices are given, in builds with the tag `rma_zoo` only ([zoo.md](zoo.md)); set by the harness", Where: "verbs", Since: "0.2",
	},
	{
		Env: "RMA_SOFTROCE", Group: Tests, Type: Type{Kind: Enum, Values: []string{"native", "qemu", "uml"}}, Else: "outside the harness", EnvOnly: true,
		What: "kind of machine in which the harness runs the program; set by the harness", Where: "tests/softroce", Since: "0.1",
	},
	{
		Env: "RMA_SOFTROCE_TOPOLOGY", Group: Tests, Type: Type{Kind: Enum, Values: []string{"one", "two", "guests"}}, Else: "outside the harness", EnvOnly: true,
		What: "arrangement of devices and networks; set by the harness", Where: "tests/softroce", Since: "0.1",
	},
	{
		Env: "RMA_SOFTROCE_DEVICES", Group: Tests, Type: Type{Kind: Text}, Else: "outside the harness", EnvOnly: true,
		What: "names of the devices, comma-separated; set by the harness", Where: "tests/softroce", Since: "0.1",
	},
	{
		Env: "RMA_SOFTROCE_ADDRS", Group: Tests, Type: Type{Kind: Text}, Else: "outside the harness", EnvOnly: true,
		What: "IPv4 addresses of the devices; set by the harness", Where: "tests/softroce", Since: "0.1",
	},
	{
		Env: "RMA_SOFTROCE_OUT", Group: Tests, Type: Type{Kind: Path}, Else: "outside the harness", EnvOnly: true,
		What: "directory for output files; set by the harness", Where: "tests/softroce", Since: "0.1",
	},
	{
		Env: "RMA_SOFTROCE_CACHE", Group: Tests, Type: Type{Kind: Path}, Else: "`rma-softroce` in the user's cache directory", EnvOnly: true,
		What: "directory of the harness's kernels", Where: "tests/softroce", Since: "0.1",
	},
	{
		Env: "RMA_SOFTROCE_SELFTEST", Group: Tests, Type: Type{Kind: Enum, Values: []string{"auto", "native", "qemu", "uml"}}, Else: "not run", EnvOnly: true,
		What: "run the harness's own tests in this kind of machine", Where: "tests/softroce", Since: "0.1",
	},
}
