# From the Verilog of the NPU to a bitstream: packages the core, makes a block design around the processing system,
# synthesises, places, routes. Run in this folder: vivado -mode batch -source build.tcl
# Everything that depends on board or configuration is in settings.tcl.

set here [file dirname [file normalize [info script]]]
source [file join $here settings.tcl]
set work [file join $here work]
file mkdir $work

# The newest version of an IP that comes with the tool.
proc newest {name} {
    set found [lsort -dictionary [get_ipdefs -all "xilinx.com:ip:$name:*"]]
    if {[llength $found] == 0} {
        error "this installation has no IP $name"
    }
    return [lindex $found end]
}

# Runs a step of the project to its end.
proc finish {run args} {
    launch_runs $run {*}$args -jobs 4
    wait_on_run $run
    if {[get_property PROGRESS [get_runs $run]] ne "100%"} {
        error "$run failed: [get_property STATUS [get_runs $run]]"
    }
}

# The core: interfaces are those the attributes in npu_core.v name.
create_project -force core [file join $work core] -part $part
add_files -norecurse [list [file join $here npu_core.v] [file join $here $npu_source]]
set_property top $core_top [current_fileset]
update_compile_order -fileset sources_1
ipx::package_project -root_dir [file join $work ip] -vendor $core_vendor -library $core_library \
    -taxonomy /UserIP -import_files -set_current true -force
set core [ipx::current_core]
set_property name $core_top $core
set_property version $core_version $core
set_property display_name "Tilewright NPU ($config_name, $config_fingerprint)" $core
foreach map [ipx::get_memory_maps -of_objects $core] {
    ipx::remove_memory_map [get_property name $map] $core
}
set map [ipx::add_memory_map $slave $core]
set_property slave_memory_map_ref $slave [ipx::get_bus_interfaces $slave -of_objects $core]
set block [ipx::add_address_block $registers $map]
set_property range $register_window $block
set_property width 32 $block
set_property usage register $block
ipx::create_xgui_files $core
ipx::update_checksums $core
ipx::save_core $core
close_project

# The block design.
create_project -force system [file join $work system] -part $part
set board_files [expr {$board_part eq "" ? "" : [lsort -dictionary [get_board_parts -quiet $board_part]]}]
if {[llength $board_files] > 0} {
    set_property board_part [lindex $board_files end] [current_project]
    set preset 1
} else {
    puts "WARNING: no board files of $board_part: the processing system keeps its defaults; take its settings from"
    puts "WARNING: the boot image of the board, which configures memory, clocks and pins before the bitstream is loaded"
    set preset 0
}
set_property ip_repo_paths [file join $work ip] [current_project]
update_ip_catalog

create_bd_design system
set ps [create_bd_cell -type ip -vlnv [newest $ps_cell] ps]
apply_bd_automation -rule xilinx.com:bd_rule:$ps_cell -config [concat $ps_automation apply_board_preset $preset] $ps
set options {}
foreach {name value} $ps_options {
    lappend options CONFIG.$name $value
}
set_property -dict $options $ps
create_bd_cell -type ip -vlnv [newest proc_sys_reset] reset
foreach name {control memory} {
    set_property -dict {CONFIG.NUM_SI 1 CONFIG.NUM_MI 1} [create_bd_cell -type ip -vlnv [newest smartconnect] $name]
}
create_bd_cell -type ip -vlnv $core_vendor:$core_library:$core_top:$core_version npu

foreach {from to} [list \
    ps/$ps_control control/S00_AXI \
    control/M00_AXI npu/$slave \
    npu/$master memory/S00_AXI \
    memory/M00_AXI ps/$ps_memory \
] {
    connect_bd_intf_net [get_bd_intf_pins $from] [get_bd_intf_pins $to]
}
foreach pin [list reset/slowest_sync_clk control/aclk memory/aclk npu/$clock ps/$ps_control_clock ps/$ps_memory_clock] {
    connect_bd_net [get_bd_pins ps/$ps_clock] [get_bd_pins $pin]
}
connect_bd_net [get_bd_pins ps/$ps_reset] [get_bd_pins reset/ext_reset_in]
connect_bd_net [get_bd_pins reset/peripheral_aresetn] [get_bd_pins control/aresetn] [get_bd_pins memory/aresetn]
connect_bd_net [get_bd_pins reset/peripheral_reset] [get_bd_pins npu/$reset]
connect_bd_net [get_bd_pins npu/$interrupt] [get_bd_pins ps/$ps_interrupt]

assign_bd_address -offset $register_base -range $register_window \
    -target_address_space [get_bd_addr_spaces ps/Data] [get_bd_addr_segs npu/$slave/$registers]
assign_bd_address -target_address_space [get_bd_addr_spaces npu/$master] [get_bd_addr_segs ps/$ps_memory_segment]
validate_bd_design
save_bd_design
set design [get_files system.bd]
# Synthesised as a whole, so that multipliers beyond the DSP blocks there are become LUTs.
set_property synth_checkpoint_mode None $design
set_property STEPS.SYNTH_DESIGN.ARGS.MAX_DSP $dsp_blocks [get_runs synth_1]
generate_target all $design
add_files -norecurse [make_wrapper -files $design -top]
set_property top system_wrapper [current_fileset]
update_compile_order -fileset sources_1

# The bitstream and what it takes.
finish synth_1
finish impl_1 -to_step write_bitstream
open_run impl_1
report_utilization -hierarchical -file [file join $here utilization.rpt]
report_timing_summary -file [file join $here timing.rpt]
report_power -file [file join $here power.rpt]
set slack [get_property SLACK [get_timing_paths -max_paths 1]]
if {$slack < 0} {
    error "the clock of $clock_mhz MHz is missed by [expr {-$slack}] ns; see timing.rpt"
}
file copy -force [file join [get_property DIRECTORY [get_runs impl_1]] system_wrapper.bit] [file join $here npu.bit]
foreach handoff [glob -nocomplain -directory $work -types f system/system.gen/sources_1/bd/system/hw_handoff/system.hwh] {
    file copy -force $handoff [file join $here npu.hwh]
}
# Linux's FPGA manager takes the bitstream without its header.
write_cfgmem -force -format BIN -interface SMAPx32 -disablebitswap -loadbit "up 0x0 [file join $here npu.bit]" \
    -file [file join $here $image]
