package config

import logsapi "k8s.io/component-base/logs/api/v1"

// LoggingOf converts from the type that all components share.
func LoggingOf(shared *logsapi.LoggingConfiguration) LoggingConfiguration {
	l := LoggingConfiguration{Format: shared.Format, FlushFrequency: shared.FlushFrequency.Duration, Verbosity: uint32(shared.Verbosity)}
	for _, item := range shared.VModule {
		l.VModule = append(l.VModule, VModuleItem{FilePattern: item.FilePattern, Verbosity: uint32(item.Verbosity)})
	}
	l.Options.Text = LogRoutingOptions(shared.Options.Text.OutputRoutingOptions)
	l.Options.JSON = LogRoutingOptions(shared.Options.JSON.OutputRoutingOptions)
	return l
}

// Shared converts to the type that all components share.
func (l *LoggingConfiguration) Shared() *logsapi.LoggingConfiguration {
	shared := &logsapi.LoggingConfiguration{
		Format: l.Format, FlushFrequency: logsapi.TimeOrMetaDuration{Duration: l.FlushFrequency, SerializeAsString: true}, Verbosity: logsapi.VerbosityLevel(l.Verbosity),
	}
	for _, item := range l.VModule {
		shared.VModule = append(shared.VModule, logsapi.VModuleItem{FilePattern: item.FilePattern, Verbosity: logsapi.VerbosityLevel(item.Verbosity)})
	}
	shared.Options.Text.OutputRoutingOptions = logsapi.OutputRoutingOptions(l.Options.Text)
	shared.Options.JSON.OutputRoutingOptions = logsapi.OutputRoutingOptions(l.Options.JSON)
	return shared
}
