// Package manifests feeds the pipeline from a folder of files, without an API server.
//
// Every .yaml, .yml and .json file of the folder is read, not those of folders inside it, nor hidden files and
// what editors leave behind. A file holds any number of documents: Service (v1), EndpointSlice
// (discovery.k8s.io/v1), Node (v1), ServiceCIDR (networking.k8s.io/v1) and List (v1) of these. The folder is
// watched, and what changes in it takes effect at once.
//
// # When an object is good
//
// Behind this source there is no API server that would have refused an object, nor a controller that will
// repair it: there is the person who wrote the file. So an object is good only if all that it says can be done.
// It is bad if a field is unknown or given twice, if it breaks a rule of the API that can be checked on the
// object alone, if it lacks what nothing would allocate here (cluster IPs, node ports), or if the Builder would
// have left a part of it out. Errors are reported with their line. A bad object is left out, and the others of
// the file are in force. As long as anything is wrong with a file, nothing that it held before is removed: the
// last good form of a bad object stays in force, and so does everything while a file is empty or unreadable,
// because that is how a file looks while it is being written. A file that is removed removes its objects; one
// that has nothing but a comment does as well.
//
// Objects of other kinds are passed over, with a line in the log, so that the folder may hold all the manifests
// of an application.
//
// Names, addresses and node ports that several objects claim are the plan's matter. Only one object of a kind
// and name can be in force, and the first file by name has it.
package manifests
