package v1alpha2

import (
	"k8s.io/apimachinery/pkg/conversion"
	componentbaseconfig "k8s.io/component-base/config"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// Convert_v1alpha2_ClientConnectionConfiguration_To_config_ClientConnectionConfiguration converts to the type shared by
// all components.
func Convert_v1alpha2_ClientConnectionConfiguration_To_config_ClientConnectionConfiguration(in *ClientConnectionConfiguration, out *componentbaseconfig.ClientConnectionConfiguration, _ conversion.Scope) error {
	*out = componentbaseconfig.ClientConnectionConfiguration(*in)
	return nil
}

// Convert_config_ClientConnectionConfiguration_To_v1alpha2_ClientConnectionConfiguration converts from the type shared
// by all components.
func Convert_config_ClientConnectionConfiguration_To_v1alpha2_ClientConnectionConfiguration(in *componentbaseconfig.ClientConnectionConfiguration, out *ClientConnectionConfiguration, _ conversion.Scope) error {
	*out = ClientConnectionConfiguration(*in)
	return nil
}

// Convert_v1alpha2_LoggingConfiguration_To_v1_LoggingConfiguration converts to the type shared by all components.
func Convert_v1alpha2_LoggingConfiguration_To_v1_LoggingConfiguration(in *LoggingConfiguration, out *logsapi.LoggingConfiguration, _ conversion.Scope) error {
	out.Format = in.Format
	out.FlushFrequency = logsapi.TimeOrMetaDuration{Duration: in.FlushFrequency, SerializeAsString: true}
	out.Verbosity = logsapi.VerbosityLevel(in.Verbosity)
	out.VModule = nil
	for _, item := range in.VModule {
		out.VModule = append(out.VModule, logsapi.VModuleItem{FilePattern: item.FilePattern, Verbosity: logsapi.VerbosityLevel(item.Verbosity)})
	}
	out.Options.Text.OutputRoutingOptions = logsapi.OutputRoutingOptions(in.Options.Text)
	out.Options.JSON.OutputRoutingOptions = logsapi.OutputRoutingOptions(in.Options.JSON)
	return nil
}

// Convert_v1_LoggingConfiguration_To_v1alpha2_LoggingConfiguration converts from the type shared by all components.
func Convert_v1_LoggingConfiguration_To_v1alpha2_LoggingConfiguration(in *logsapi.LoggingConfiguration, out *LoggingConfiguration, _ conversion.Scope) error {
	out.Format = in.Format
	out.FlushFrequency = in.FlushFrequency.Duration
	out.Verbosity = uint32(in.Verbosity)
	out.VModule = nil
	for _, item := range in.VModule {
		out.VModule = append(out.VModule, VModuleItem{FilePattern: item.FilePattern, Verbosity: uint32(item.Verbosity)})
	}
	out.Options.Text = LogRoutingOptions(in.Options.Text.OutputRoutingOptions)
	out.Options.JSON = LogRoutingOptions(in.Options.JSON.OutputRoutingOptions)
	return nil
}
